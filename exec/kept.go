package exec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/lowering"
)

// KeptStates is what a sequence keeps between steps, but for the rows of its caches, as
// the engine that it comes from has it: a run of bytes per rank. Whoever has it frees it.
type KeptStates struct {
	Tokens int // that the sequence was given
	data   [][]byte
	freed  bool
}

// KeptRows is what the caches have of some tokens of a sequence. Whoever has it frees it.
type KeptRows struct {
	From, To int // the first token, and the one after the last
	data     [][]byte
	freed    bool
}

// HostStates are [KeptStates] that were brought to the host, or come from there: a run
// of bytes per rank that has states.
type HostStates struct {
	Tokens int
	Data   [][]byte
}

// HostRows are [KeptRows] that were brought to the host, or come from there: for each cache of
// each rank the rows of the tokens.
type HostRows struct {
	From, To int
	Data     [][]byte
}

// StateBytes is what [KeptStates] take, and RowBytes what [KeptRows] take per token.
func (e *Engine) StateBytes() (n int64) {
	for _, s := range e.schedules {
		n += s.Bytes[lowering.State]
	}
	return n
}

// RowBytes is what the caches of all ranks have of a token.
func (e *Engine) RowBytes() (n int64) {
	for _, h := range e.caches() {
		n += int64(h.bytes(1))
	}
	return n
}

// caches lists what the ranks hold of caches.
func (e *Engine) caches() (list []*held) {
	for k := range e.states {
		for j := range e.states[k].held {
			if h := &e.states[k].held[j]; h.run == 0 {
				list = append(list, h)
			}
		}
	}
	return list
}

// ofRanks lists a state of each rank that has some: its run has all of the rank's.
func (e *Engine) ofRanks() (list []*held) {
	for k := range e.states {
		for j := range e.states[k].held {
			h := &e.states[k].held[j]
			if h.run > 0 && !slices.ContainsFunc(list, func(x *held) bool { return x.rank == h.rank }) {
				list = append(list, h)
			}
		}
	}
	return list
}

// KeepStates copies the states of a sequence, by one copy per rank.
func (e *Engine) KeepStates(slot int) (*KeptStates, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return nil, err
	}
	out := &KeptStates{Tokens: e.slots.tokens[i]}
	for _, h := range e.ofRanks() {
		data := make([]byte, h.run)
		if err := e.machine.Read(h.rank, h.buffer, int64(i)*int64(h.run), data); err != nil {
			return nil, err
		}
		out.data = append(out.data, data)
	}
	return out, nil
}

// KeepRows copies what the caches have of some tokens of a sequence, by one copy per
// cache and rank.
func (e *Engine) KeepRows(slot, from, to int) (*KeptRows, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return nil, err
	}
	if from < 0 || to < from || to > e.slots.tokens[i] {
		return nil, fmt.Errorf("tokens %d to %d of a sequence of %d", from, to, e.slots.tokens[i])
	}
	out := &KeptRows{From: from, To: to}
	for _, h := range e.caches() {
		data := make([]byte, h.bytes(to-from))
		if err := e.machine.Read(h.rank, h.buffer, e.at(h, i)+int64(h.bytes(from)), data); err != nil {
			return nil, err
		}
		out.data = append(out.data, data)
	}
	return out, nil
}

// Put lets the sequence of a slot go on from what was kept in this engine: states, and
// rows of all tokens before, in order. What was kept stays so. A model that has no states
// but attention's caches takes nil for them, and goes on after the last row. After an error in the
// middle, the sequence must be freed or reset.
func (e *Engine) Put(slot int, s *KeptStates, rows ...*KeptRows) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	i, err := e.slots.find(slot)
	if err != nil {
		return err
	}
	if s == nil && e.StateBytes() > 0 {
		return errors.New("rows without the states after them")
	}
	at := 0
	for _, r := range rows {
		if r.From != at {
			return fmt.Errorf("rows of tokens %d to %d are kept where token %d is next", r.From, r.To, at)
		}
		at = r.To
	}
	if s == nil {
		s = &KeptStates{Tokens: at}
	}
	if at != s.Tokens && len(e.caches()) > 0 {
		return fmt.Errorf("states after %d tokens, and rows of %d", s.Tokens, at)
	}
	if err := e.grow(s.Tokens); err != nil {
		return err
	}
	e.slots.state[i], e.slots.tokens[i] = broken, s.Tokens // until all of it is there
	if err := e.write(i, s, rows); err != nil {
		return err
	}
	e.slots.state[i] = taken
	return nil
}

// write copies what was kept to a slot.
func (e *Engine) write(slot int, s *KeptStates, rows []*KeptRows) error {
	for k, h := range e.ofRanks() {
		if err := e.machine.Write(h.rank, h.buffer, int64(slot)*int64(h.run), s.data[k]); err != nil {
			return err
		}
	}
	for k, h := range e.caches() {
		for _, r := range rows {
			if err := e.machine.Write(h.rank, h.buffer, e.at(h, slot)+int64(h.bytes(r.From)), r.data[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Split cuts rows in those before a token and the rest, which are there in their place.
func (r *KeptRows) Split(at int) (before, rest *KeptRows) {
	before, rest = &KeptRows{From: r.From, To: at}, &KeptRows{From: at, To: r.To}
	for _, data := range r.data {
		n := 0
		if r.To > r.From {
			n = len(data) / (r.To - r.From) * (at - r.From)
		}
		before.data, rest.data = append(before.data, slices.Clone(data[:n])), append(rest.data, slices.Clone(data[n:]))
	}
	r.Free()
	return before, rest
}

// Join is rows, and those that follow, in place of the two.
func (r *KeptRows) Join(next *KeptRows) *KeptRows {
	out := &KeptRows{From: r.From, To: next.To}
	for k, data := range r.data {
		out.data = append(out.data, slices.Concat(data, next.data[k]))
	}
	r.Free()
	next.Free()
	return out
}

// Free gives back what is held.
func (s *KeptStates) Free() {
	if s.freed {
		panic("BUG: states are freed twice")
	}
	s.data, s.freed = nil, true
}

// Free gives back what is held.
func (r *KeptRows) Free() {
	if r.freed {
		panic("BUG: rows are freed twice")
	}
	r.data, r.freed = nil, true
}

// Bytes is what is held.
func (s *KeptStates) Bytes() int64 { return total(s.data) }

// Bytes is what is held.
func (r *KeptRows) Bytes() int64 { return total(r.data) }

func total(data [][]byte) (n int64) {
	for _, d := range data {
		n += int64(len(d))
	}
	return n
}
