package lowering

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Move is a stretch of bytes that a rank gets: of a state, or of the row of each token of a cache.
type Move struct {
	From   int // the rank that sends it
	Source int // its buffer
	At     int64
	Buffer int // of the rank that gets it
	To     int64
	Bytes  int64
}

// Moves lists for each rank of one model what it gets of what the ranks of another keep,
// buffer by buffer and in order, so that each byte comes once. They are the same model on
// other ranks, or by another strategy. Of ranks that hold the same, those send whose share of
// the whole meets the receiver's, and of these the one that sends it least so far. Bytes of
// which no rank has anything are in no move: nothing reads them, and they are zero.
func Moves(from, to *StateLayout) ([][]Move, error) {
	if err := alike(from, to); err != nil {
		return nil, err
	}
	there := from.stretches()
	out := make([][]Move, to.Ranks)
	for rank := range out {
		senders, _ := from.share(0)
		l := mover{senders: senders, sent: make([]int64, from.Ranks)}
		l.ranks, l.rank = to.share(rank)
		for i := range to.Buffers {
			b := &to.Buffers[i]
			name, _ := b.State()
			for _, s := range to.pieces(rank, i).List {
				l.fill(there[name], i, s, int64(b.Type.DType.Bytes()))
			}
		}
		out[rank] = l.list
	}
	return out, nil
}

// alike checks that both keep the same states of a model, in the same formats.
func alike(from, to *StateLayout) error {
	there, here := from.model(), to.model()
	for _, name := range slices.Sorted(maps.Keys(there)) {
		switch t, u := there[name], here[name]; {
		case u.DType == graph.NoDType:
			return fmt.Errorf("the sender keeps state %s : %s, and the receiver does not: they are different models", name, t)
		case t.DType != u.DType:
			return fmt.Errorf("the sender keeps state %s in %s, and the receiver in %s: open both with the same formats of states", name, t.DType, u.DType)
		case !t.Equal(u):
			return fmt.Errorf("state %s of the sender is %s, and %s of the receiver: they are different models", name, t, u)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(here)) {
		if _, ok := there[name]; !ok {
			return fmt.Errorf("the receiver keeps state %s : %s, and the sender does not: they are different models", name, here[name])
		}
	}
	return nil
}

// model is the states of the model, by name.
func (k *StateLayout) model() map[string]graph.Type {
	out := map[string]graph.Type{}
	for i := range k.Buffers {
		name, t := k.Buffers[i].State()
		out[name] = t
	}
	return out
}

// stretch is what a rank has of a row of a state of the model, in elements.
type stretch struct {
	rank, buffer int
	graph.Stretch
}

// stretches lists what ranks have of each state of the model.
func (k *StateLayout) stretches() map[string][]stretch {
	out := map[string][]stretch{}
	for i := range k.Buffers {
		b := &k.Buffers[i]
		name, _ := b.State()
		for rank := range k.Ranks {
			for _, s := range k.pieces(rank, i).List {
				out[name] = append(out[name], stretch{rank, i, s})
			}
		}
	}
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b stretch) int { return cmp.Compare(a.Whole, b.Whole) })
	}
	return out
}

// mover lists the moves of a rank.
type mover struct {
	rank, ranks int     // the rank's share of its stage, of how many
	senders     int     // shares of a stage of the other model
	sent        []int64 // bytes that come from each sender
	list        []Move
}

// fill finds sources for a stretch of a buffer.
func (l *mover) fill(there []stretch, buffer int, want graph.Stretch, size int64) {
	for at, end := want.Whole, want.Whole+want.N; at < end; {
		for len(there) > 0 && there[0].Whole+there[0].N <= at { // nor is it later
			there = there[1:]
		}
		s, next := l.choose(there, at, end)
		if s != nil {
			l.add(Move{s.rank, s.buffer, int64(s.Part+at-s.Whole) * size,
				buffer, int64(want.Part+at-want.Whole) * size, int64(next-at) * size})
		}
		at = next
	}
}

// choose is who sends the row from an element on, and where that ends; or no rank.
func (l *mover) choose(there []stretch, at, end int) (best *stretch, next int) {
	next = end
	for i := range there {
		s := &there[i]
		switch {
		case s.Whole > at: // so are all others
			if best == nil {
				next = min(next, s.Whole)
			}
			return best, next
		case s.Whole+s.N <= at:
		case best == nil || l.before(s.rank, best.rank):
			best, next = s, min(end, s.Whole+s.N)
		}
	}
	return best, next
}

// before reports whether one rank rather sends than another: one whose share meets the
// receiver's, or else is closest; then who sends less, then the first.
func (l *mover) before(a, b int) bool {
	return cmp.Or(cmp.Compare(l.far(a), l.far(b)), cmp.Compare(l.sent[a], l.sent[b]), cmp.Compare(a, b)) < 0
}

// far is how far a sender's share of the whole is from the receiver's; 0: they meet.
func (l *mover) far(sender int) int {
	n := l.senders
	sender %= n
	return max(0, l.rank*n-(sender+1)*l.ranks+1, sender*l.ranks-(l.rank+1)*n+1)
}

// add appends a move, or makes the last one longer.
func (l *mover) add(m Move) {
	l.sent[m.From] += m.Bytes
	if n := len(l.list); n > 0 {
		last := &l.list[n-1]
		if last.From == m.From && last.Source == m.Source && last.Buffer == m.Buffer && last.At+last.Bytes == m.At && last.To+last.Bytes == m.To {
			last.Bytes += m.Bytes
			return
		}
	}
	l.list = append(l.list, m)
}
