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

// Walked is Mask without the tokens that end a text, made from no other mask.
func (t *Matcher) Walked() []int32 {
	mask := make([]int32, t.m.v.words)
	t.m.walk(t.m.v, visit{0, t.at}, mask)
	return mask
}

// Prefixes yields the tokens that a text begins with and their sizes, the longest first.
func Prefixes(v *Vocabulary, text []byte) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		var path []int32
		at := int32(0)
	next:
		for _, b := range text {
			for n, c := range v.children(at) {
				if c == b {
					at, path = n, append(path, n)
					continue next
				}
			}
			break
		}
		for i, n := range slices.Backward(path) {
			for _, id := range v.own(n) {
				if !yield(int(id), i+1) {
					return
				}
			}
		}
	}
}
