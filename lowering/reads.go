package lowering

import (
	"errors"
	"fmt"
	"strings"
)

// End says how a model keeps its sequences at one end of a transfer.
type End struct {
	States     *StateLayout
	PageTokens int // tokens that a page of caches has rows for
}

// Transfer says what moves when a sequence goes from one end to another.
type Transfer struct {
	From, To End
	moves    [][]Move // by the rank that gets them
	from, to []regions
}

// Read is what a rank gets at once: Count stretches of Bytes each, from the memory of a
// rank of the other end.
type Read struct {
	From   int   `json:"from"` // the rank that sends it
	Source Place `json:"source"`
	Dest   Place `json:"dest"`
	Bytes  int64 `json:"bytes"`
	Count  int   `json:"count"` // more than one are rows of a cache, of which a rank has a part
}

// Each visits the stretches: where each begins in the regions of source and destination.
func (r *Read) Each(visit func(source, dest int64)) {
	for i := range int64(r.Count) {
		visit(r.Source.At+i*r.Source.Stride, r.Dest.At+i*r.Dest.Stride)
	}
}

// Place is where stretches lie in a rank's memory. Region 0 is the run of a sequence's
// states; region 1+i is the page of its tokens from i times a page's tokens on.
type Place struct {
	Buffer int   `json:"buffer"` // of [StateLayout], where the first stretch begins
	Region int   `json:"region"`
	At     int64 `json:"at"`               // byte of the region
	Stride int64 `json:"stride,omitempty"` // bytes from one stretch to the next
}

// regions is where a rank's buffers lie in its regions.
type regions struct {
	states, pages, row []int64
}

func (e *End) regions() []regions {
	out := make([]regions, e.States.Ranks)
	for rank := range out {
		r := regions{}
		r.states, _ = e.States.States(rank)
		r.pages, _ = e.States.Page(rank, e.PageTokens)
		for i := range e.States.Buffers {
			r.row = append(r.row, e.States.Bytes(rank, i))
		}
		out[rank] = r
	}
	return out
}

// NewTransfer works out what moves; it is an error where the ends keep different models, or
// the same states in different formats.
func NewTransfer(from, to End) (*Transfer, error) {
	if from.PageTokens < 1 || to.PageTokens < 1 {
		return nil, fmt.Errorf("pages of %d and of %d tokens: both must be at least 1", from.PageTokens, to.PageTokens)
	}
	moves, err := Moves(from.States, to.States)
	if err != nil {
		return nil, err
	}
	return &Transfer{From: from, To: to, moves: moves, from: from.regions(), to: to.regions()}, nil
}

// Reads lists what a rank gets of a sequence of a number of tokens whose first rows it has
// already: its states first, then page by page what it has not of its caches.
func (t *Transfer) Reads(rank, tokens, have int) ([]Read, error) {
	switch {
	case rank < 0 || rank >= t.To.States.Ranks:
		return nil, fmt.Errorf("there is no rank %d of %d", rank, t.To.States.Ranks)
	case have < 0 || tokens < have:
		return nil, fmt.Errorf("%d tokens, of which %d are there", tokens, have)
	case tokens == 0:
		return nil, errors.New("a sequence without tokens has nothing to move")
	}
	return append(t.States(rank), t.Rows(rank, tokens, have)...), nil
}

// States lists what a rank gets of the states of a sequence.
func (t *Transfer) States(rank int) (list []Read) {
	for _, m := range t.moves[rank] {
		if !t.To.States.Buffers[m.Buffer].Cache() {
			list = t.join(list, t.state(rank, m))
		}
	}
	return list
}

// Rows lists what a rank gets of the caches of a sequence, from row have to row tokens.
func (t *Transfer) Rows(rank, tokens, have int) (list []Read) {
	for at := have; at < tokens; {
		end := min(tokens, nextPage(at, t.From.PageTokens), nextPage(at, t.To.PageTokens))
		for _, m := range t.moves[rank] {
			if t.To.States.Buffers[m.Buffer].Cache() {
				list = append(list, t.rows(rank, m, at, end-at))
			}
		}
		at = end
	}
	return list
}

// nextPage is the first token of the page after that of a token.
func nextPage(token, size int) int { return (token/size + 1) * size }

// state is the read of a move of a state.
func (t *Transfer) state(rank int, m Move) Read {
	return Read{m.From,
		Place{Buffer: m.Source, At: t.from[m.From].states[m.Source] + m.At},
		Place{Buffer: m.Buffer, At: t.to[rank].states[m.Buffer] + m.To}, m.Bytes, 1}
}

// rows is the read of a move of some rows of a cache, which are in one page of each end.
// Rows that follow each other at both are one stretch.
func (t *Transfer) rows(rank int, m Move, first, n int) Read {
	r := Read{m.From, t.from[m.From].row0(m.Source, first, t.From.PageTokens), t.to[rank].row0(m.Buffer, first, t.To.PageTokens), m.Bytes, n}
	r.Source.At += m.At
	r.Dest.At += m.To
	if n == 1 || r.Source.Stride == r.Bytes && r.Dest.Stride == r.Bytes {
		r.Bytes, r.Count, r.Source.Stride, r.Dest.Stride = r.Bytes*int64(n), 1, 0, 0
	}
	return r
}

// row0 is the place of a token's row of a cache.
func (g *regions) row0(buffer, token, size int) Place {
	return Place{buffer, 1 + token/size, g.pages[buffer] + int64(token%size)*g.row[buffer], g.row[buffer]}
}

// join appends a read of states, or makes the last one longer, where both are of one state
// of the model and follow each other at both ends: fields of a state that the ends keep apart.
func (t *Transfer) join(list []Read, r Read) []Read {
	if n := len(list); n > 0 {
		last := &list[n-1]
		a, _ := t.To.States.Buffers[last.Dest.Buffer].State()
		b, _ := t.To.States.Buffers[r.Dest.Buffer].State()
		if a == b && last.From == r.From && last.Source.At+last.Bytes == r.Source.At && last.Dest.At+last.Bytes == r.Dest.At {
			last.Bytes += r.Bytes
			return list
		}
	}
	return append(list, r)
}

// Name is what a read brings: a state of the model, or fields of one.
func (t *Transfer) Name(rank int, r Read) string {
	k, at, g := t.To.States, r.Dest, t.to[rank]
	if k.Buffers[at.Buffer].Part == nil {
		k, at, g = t.From.States, r.Source, t.from[r.From]
	}
	name, typ := k.Buffers[at.Buffer].State()
	if k.Buffers[at.Buffer].Part == nil {
		return name
	}
	fields := []string{}
	for i := at.Buffer; i < len(k.Buffers); i++ {
		b := &k.Buffers[i]
		if i > at.Buffer && (b.Part == nil || b.Part.State != name || g.states[i] >= at.At+r.Bytes) {
			break
		}
		if g.row[i] > 0 {
			fields = append(fields, b.Part.Field)
		}
	}
	if len(fields) == len(typ.Dims[k.Buffers[at.Buffer].Part.Axis].Fields) {
		return name
	}
	return name + "." + strings.Join(fields, "+")
}
