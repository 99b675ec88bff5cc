package constrain

import (
	"iter"
	"slices"
)

// Takes reports whether a text is one of the grammar.
func (g *Grammar) Takes(text []byte) bool {
	m := g.Match(&Vocabulary{}, nil)
	for _, b := range text {
		m.move()
		if m.at = m.m.step(m.at, b); m.at == dead {
			return false
		}
	}
	return m.m.sets[m.at].final
}

// States is the size of the grammar.
func (g *Grammar) States() int { return len(g.states) }

// Walked is Mask without the tokens that end a text, made of each token alone.
func (t *Matcher) Walked() []int32 {
	mask := make([]int32, t.m.v.words)
	for id, b := range t.m.v.bytes {
		at := t.at
		for i := 0; i < len(b) && at != dead; i++ {
			at = t.m.step(at, b[i])
		}
		if len(b) > 0 && at != dead {
			setBit(mask, int32(id))
		}
	}
	return mask
}

// Prefixes yields the tokens that a text begins with and their sizes, the longest first.
func Prefixes(v *Vocabulary, text []byte) iter.Seq2[int, int] {
	type found struct{ id, size int }
	var list []found
	var walk func(at int32, size int)
	walk = func(at int32, size int) {
		for _, id := range v.own(at) {
			list = append(list, found{int(id), size})
		}
		for n, c := range v.children(at) {
			if size < len(text) && c == text[size] {
				walk(n, size+1)
			}
		}
	}
	walk(0, 0)
	slices.SortFunc(list, func(a, b found) int { return b.size - a.size })
	return func(yield func(int, int) bool) {
		for _, f := range list {
			if !yield(f.id, f.size) {
				return
			}
		}
	}
}

// Prime makes what a vocabulary makes once.
func (v *Vocabulary) Prime() { v.interior() }

// ShareAll makes masks be shared from the first, until the function that it returns is called.
func ShareAll() (undo func()) {
	was := classesFrom
	classesFrom = -1
	return func() { classesFrom = was }
}

// Shared is how many sets of the grammar's last machine have a mask that was made for another.
func (g *Grammar) Shared() (n int) {
	made := map[*int32]bool{}
	for _, s := range g.last.sets[1:] {
		if s.mask == nil {
			continue
		}
		if made[&s.mask[0]] {
			n++
		}
		made[&s.mask[0]] = true
	}
	return n
}
