package constrain

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// automaton is a regular set of texts: a deterministic automaton over characters that begins in
// state 0. Without an arc there is no way on. From every state but the first, an accepting one can
// be reached.
type automaton struct {
	arcs   [][]arc // sorted, disjoint
	accept []bool
	words  []string // the whole set, of few texts; nil: not known
}

// arc reads a character from low to high.
type arc struct {
	low, high rune
	to        int32
}

// move is an arc to a state that has no number yet.
type move[S comparable] struct {
	low, high rune
	to        S
}

// build numbers the states that can be reached, and drops those that no accepted text passes.
func build[S comparable](start S, moves func(S) []move[S], accepts func(S) bool) *automaton {
	a, ids, states := &automaton{}, map[S]int32{start: 0}, []S{start}
	for i := 0; i < len(states); i++ {
		var arcs []arc
		for _, m := range moves(states[i]) {
			id, ok := ids[m.to]
			if !ok {
				if id = int32(len(states)); id >= maxAutomaton {
					panic(fmt.Errorf("a pattern, length or multipleOf takes more than %d states; use a shorter one", maxAutomaton))
				}
				ids[m.to], states = id, append(states, m.to)
			}
			if n := len(arcs); n > 0 && arcs[n-1].to == id && arcs[n-1].high+1 == m.low {
				arcs[n-1].high = m.high
				continue
			}
			arcs = append(arcs, arc{m.low, m.high, id})
		}
		a.arcs, a.accept = append(a.arcs, arcs), append(a.accept, accepts(states[i]))
	}
	return a.trim()
}

// trim drops the states from which no accepting one can be reached.
func (a *automaton) trim() *automaton {
	before := make([][]int32, len(a.arcs))
	var todo []int32
	lives := slices.Clone(a.accept)
	for s, arcs := range a.arcs {
		for _, e := range arcs {
			before[e.to] = append(before[e.to], int32(s))
		}
		if lives[s] {
			todo = append(todo, int32(s))
		}
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range before[s] {
			if !lives[p] {
				lives[p], todo = true, append(todo, p)
			}
		}
	}
	out, ids := &automaton{}, make([]int32, len(a.arcs))
	for s := range a.arcs {
		if ids[s] = int32(len(out.arcs)); lives[s] || s == 0 {
			out.arcs, out.accept = append(out.arcs, nil), append(out.accept, a.accept[s])
		}
	}
	for s, arcs := range a.arcs {
		for _, e := range arcs {
			if (lives[s] || s == 0) && lives[e.to] {
				out.arcs[ids[s]] = append(out.arcs[ids[s]], arc{e.low, e.high, ids[e.to]})
			}
		}
	}
	return out
}

// empty reports whether no text is accepted.
func (a *automaton) empty() bool { return len(a.arcs[0]) == 0 && !a.accept[0] }

// has reports whether a text is accepted.
func (a *automaton) has(text string) bool {
	at := int32(0)
	for _, c := range text {
		if at = a.step(at, c); at == dead {
			return false
		}
	}
	return a.accept[at]
}

func (a *automaton) step(at int32, c rune) int32 {
	arcs := a.arcs[at]
	i, _ := slices.BinarySearchFunc(arcs, c, func(e arc, c rune) int { return cmp.Compare(e.high, c) })
	if i < len(arcs) && arcs[i].low <= c {
		return arcs[i].to
	}
	return dead
}

// pair is a state in each of two automatons; dead where one has no way on.
type pair struct{ a, b int32 }

// combine walks two automatons at once, as long as goesOn.
func combine(a, b *automaton, goesOn func(pair) bool, accepts func(a, b bool) bool) *automaton {
	arcs := func(x *automaton, s int32) []arc {
		if s == dead {
			return nil
		}
		return x.arcs[s]
	}
	return build(pair{}, func(p pair) (list []move[pair]) {
		left, right := arcs(a, p.a), arcs(b, p.b)
		for at := rune(0); at <= utf8.MaxRune; {
			high, to := rune(utf8.MaxRune), pair{dead, dead}
			left, to.a, high = reach(left, at, high)
			right, to.b, high = reach(right, at, high)
			if goesOn(to) {
				list = append(list, move[pair]{at, high, to})
			}
			at = high + 1
		}
		return list
	}, func(p pair) bool {
		return accepts(p.a != dead && a.accept[p.a], p.b != dead && b.accept[p.b])
	})
}

// reach returns the arcs that end at a character or later, where it leads, and up to which
// character that is so.
func reach(arcs []arc, at, high rune) ([]arc, int32, rune) {
	for len(arcs) > 0 && arcs[0].high < at {
		arcs = arcs[1:]
	}
	switch {
	case len(arcs) == 0:
		return nil, dead, high
	case arcs[0].low > at:
		return arcs, dead, min(high, arcs[0].low-1)
	}
	return arcs, arcs[0].to, min(high, arcs[0].high)
}

// both accepts what two automatons accept; nil accepts all.
func both(a, b *automaton) *automaton {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	switch {
	case a.words != nil:
		return a.filter(b.has)
	case b.words != nil:
		return b.filter(a.has)
	}
	return combine(a, b, func(p pair) bool { return p.a != dead && p.b != dead }, func(a, b bool) bool { return a && b })
}

// filter is the words that f reports true of.
func (a *automaton) filter(f func(string) bool) *automaton {
	words := slices.DeleteFunc(slices.Clone(a.words), func(word string) bool { return !f(word) })
	if len(words) == len(a.words) {
		return a
	}
	return among(words)
}

// minus accepts what the first alone accepts; nil accepts all.
func minus(a, b *automaton) *automaton {
	if a == nil {
		a = lengths(0, unbounded)
	}
	if a.words != nil {
		return a.filter(func(word string) bool { return !b.has(word) })
	}
	return combine(a, b, func(p pair) bool { return p.a != dead }, func(a, b bool) bool { return a && !b })
}

// lengths accepts the texts of least to most characters.
func lengths(least, most int) *automaton {
	top := least // where counting ends
	if most < unbounded {
		top = most + 1
	}
	return build(0, func(n int) []move[int] {
		if n+1 > most {
			return nil
		}
		return []move[int]{{0, utf8.MaxRune, min(n+1, top)}}
	}, func(n int) bool { return n >= least })
}

// among accepts some texts.
func among(words []string) *automaton {
	type node = map[rune]int32
	trie, accept := []node{{}}, []bool{false}
	for _, word := range words {
		at := int32(0)
		for _, c := range word {
			to, ok := trie[at][c]
			if !ok {
				if to = int32(len(trie)); to >= maxStates {
					panic(fmt.Errorf("the values are too long together: they take more than %d states. Name fewer values, or a pattern", maxStates))
				}
				trie, accept = append(trie, node{}), append(accept, false)
				trie[at][c] = to
			}
			at = to
		}
		accept[at] = true
	}
	a := &automaton{arcs: make([][]arc, len(trie)), accept: accept, words: append([]string{}, words...)}
	for s, n := range trie {
		for c, to := range n {
			a.arcs[s] = append(a.arcs[s], arc{c, c, to})
		}
		slices.SortFunc(a.arcs[s], func(x, y arc) int { return cmp.Compare(x.low, y.low) })
	}
	return a
}
