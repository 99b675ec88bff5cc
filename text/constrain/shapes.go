package constrain

import (
	"math"
	"slices"
)

// What may come behind a set by a byte of a class, besides a set that all lead to.
const (
	several = -2 // sets
	mixed   = -3 // sets, and nothing
)

// maxTogether bounds the sets that are followed together.
const maxTogether = 16

// behind is where the bytes of a class lead from a set.
func (m *machine) behind(s *set, class uint8) int32 {
	if to := s.next[class]; to != 0 {
		return to
	}
	of := bytesOf[class]
	to, _, high := m.stepFrom(s, of[0])
	if s.next[class] != 0 {
		return to
	}
	list, next := make([]int32, len(of)), to
	for i, b := range of {
		if b > high {
			next, _, high = m.stepFrom(s, b)
		}
		switch list[i] = next; {
		case next == to:
		case next == dead || to == dead || to == mixed:
			to = mixed
		default:
			to = several
		}
	}
	if s.next[class] = to; to < dead {
		s.rows = append(s.rows, row{class, list})
	}
	return to
}

// shapeWalk sets the bits of the tokens of whose classes any bytes lead on. Where only some of a
// class do, it follows the tokens behind classes of several bytes each from there, and leaves the
// others to be followed in the tree.
type shapeWalk struct {
	m      *machine
	v      *Vocabulary
	from   int32
	mask   []int32
	buffer []int32 // of sets
	ways   []int32
	left   []visit
}

// below walks what is below a branch of the shapes; sets are where bytes of these classes lead.
// branch is the one of the tree, if each class has one byte, or else dead.
func (w *shapeWalk) below(n int32, sets []int32, branch, depth int32) {
	t := &w.v.shapes
	for n, class := range t.children(n) {
		if !w.m.within() {
			return
		}
		at, used := &t.branches[n], len(w.buffer)
		to, ok := w.together(sets, class)
		switch {
		case !ok && branch != dead:
			w.leave(branch, sets[0], class)
		case !ok:
			w.each(n, sets, depth)
		case len(to) == 0:
		case w.takes(to, at):
			t.allowBelow(n, w.mask)
		default:
			t.allowOwn(n, w.mask)
			w.below(n, to, w.child(branch, class), depth+1)
		}
		w.buffer = w.buffer[:used]
	}
}

// child is the branch of the tree behind another and the byte of a class.
func (w *shapeWalk) child(branch int32, class uint8) int32 {
	if branch != dead && len(bytesOf[class]) == 1 {
		for n, b := range w.v.children(branch) {
			if b == bytesOf[class][0] {
				return n
			}
		}
	}
	return dead
}

// leave leaves the branches behind another and the bytes of a class to be followed.
func (w *shapeWalk) leave(branch, from int32, class uint8) {
	for n, b := range w.v.children(branch) {
		if classOf[b] != class {
			continue
		}
		if to := w.m.step(from, b); to != dead {
			w.v.allowOwn(n, w.mask)
			w.left = append(w.left, visit{n, to})
		}
	}
}

// each follows the tokens at and below a branch of the shapes one by one, those with a byte of its
// class that leads on from some set. It begins where a token differs from the one before.
func (w *shapeWalk) each(n int32, sets []int32, depth int32) {
	t, v, m := &w.v.shapes, w.v, w.m
	var leads [256]bool
	for _, s := range sets {
		for _, b := range bytesOf[t.branches[n].b] {
			leads[b] = leads[b] || m.step(s, b) != dead
		}
	}
	first, end := t.branches[n].first, t.branches[t.branches[n].end].first
	ways, skip := append(w.ways[:0], sets[0]), depth // the sets behind the last token's bytes, up to dead
	if len(sets) > 1 {
		ways[0], skip = w.from, 0
	}
	same := 0
	for i := first; i < end && m.within(); i++ {
		if same = min(same, int(v.same[i])); !leads[v.text[v.begins[i]+depth]] {
			continue
		}
		ways = ways[:min(len(ways), max(same-int(skip), 0)+1)]
		at := ways[len(ways)-1]
		for rest := v.text[v.begins[i]+skip+int32(len(ways)-1) : v.begins[i+1]]; at != dead && len(rest) > 0; rest = rest[1:] {
			at = m.step(at, rest[0])
			ways = append(ways, at)
		}
		if same = math.MaxUint8; at != dead {
			setBit(w.mask, t.tokens[i])
		}
	}
	w.ways = ways
}

// together are the sets behind a class, if all bytes lead to one, or none does.
func (w *shapeWalk) together(sets []int32, class uint8) (to []int32, ok bool) {
	m, ends, used := w.m, false, len(w.buffer)
	add := func(next int32) {
		if next == dead {
			ends = true
		} else if !slices.Contains(w.buffer[used:], next) {
			w.buffer = append(w.buffer, next)
		}
	}
	for _, at := range sets {
		s := m.sets[at]
		switch next := m.behind(s, class); next {
		case mixed:
			return nil, false
		case several:
			for _, b := range bytesOf[class] {
				add(m.stepOf(s, b))
			}
		default:
			add(next)
		}
	}
	to = w.buffer[used:]
	return to, !(ends && len(to) > 0 || len(to) > maxTogether)
}

func (w *shapeWalk) takes(sets []int32, at *branch) bool {
	for _, s := range sets {
		if !w.m.takes(s, at.classes, at.height) {
			return false
		}
	}
	return true
}
