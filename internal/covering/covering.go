// Package covering chooses few cases of many for tests, so that every two options occur together.
package covering

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
)

// few is the most cases that a test runs by default, which may leave out options.
const few = 3

// Cases returns the cases that a test runs: by default few, in CI every two options are together in
// some case ([Pairs]), and with KRAIT_TEST_ALL it is all of them.
func Cases(t testing.TB, levels ...int) (cases [][]int) {
	switch {
	case goldens.All():
		return product(levels)
	case goldens.Few(t):
		return fewOf(spread(t.Name(), levels))
	}
	return Pairs(t.Name(), levels...)
}

// Each returns cases where the levels of some factors, as models, come first, and in CI are each in
// some case and need not occur with every other option: every two options of the others do. By
// default the cases are few, and with KRAIT_TEST_ALL they have every two options of all factors.
func Each(t testing.TB, each []int, levels ...int) (cases [][]int) {
	switch all := slices.Concat(each, levels); {
	case goldens.All():
		return Pairs(t.Name(), all...)
	case goldens.Few(t):
		return fewOf(spread(t.Name(), all))
	}
	return spread(t.Name(), each, levels...)
}

// Drawn returns one of each twelve neighbours in a list, which are alike, as those of
// [goldens.Names], chosen by the test's name; in CI one of each four, with KRAIT_TEST_ALL all.
func Drawn[T any](t testing.TB, list []T) (drawn []T) {
	n := 4
	switch {
	case goldens.All():
		return list
	case goldens.Few(t):
		n = 12
	}
	r := random(t.Name())
	for near := range slices.Chunk(list, n) {
		drawn = append(drawn, near[r.IntN(len(near))])
	}
	return drawn
}

// fewOf returns at most few of the cases, at equal distances.
func fewOf(cases [][]int) (chosen [][]int) {
	n := min(few, len(cases))
	for i := range n {
		chosen = append(chosen, cases[i*len(cases)/n])
	}
	return chosen
}

func spread(name string, each []int, levels ...int) (cases [][]int) {
	pairs, r := [][]int{nil}, random(name)
	if len(levels) > 0 {
		pairs = Pairs(name, levels...)
	}
	r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	cases = make([][]int, max(len(pairs), slices.Max(each)))
	for _, n := range each {
		order := r.Perm(n)
		for i := range cases {
			cases[i] = append(cases[i], order[i%n])
		}
	}
	for i := range cases {
		cases[i] = append(cases[i], pairs[i%len(pairs)]...)
	}
	slices.SortStableFunc(cases, func(a, b []int) int { return a[0] - b[0] }) // a model's together
	return cases
}

func product(levels []int) (cases [][]int) {
	cases = [][]int{{}}
	for _, n := range levels {
		var longer [][]int
		for _, c := range cases {
			for level := range n {
				longer = append(longer, append(slices.Clone(c), level))
			}
		}
		cases = longer
	}
	return cases
}

// Pairs returns cases, each with a level of every factor, of which factor i has levels[i]. Any two
// levels of two factors are in some case together. The cases depend on the name and levels alone.
func Pairs(name string, levels ...int) (cases [][]int) {
	if len(levels) == 1 { // which has no pairs
		return product(levels)
	}
	r := random(name)
	type pair struct{ f, a, g, b int }
	open := map[pair]bool{}
	var order []pair // so that the choice does not depend on a map
	for f := range levels {
		for g := range f {
			for a := range levels[f] {
				for b := range levels[g] {
					p := pair{g, b, f, a}
					open[p], order = true, append(order, p)
				}
			}
		}
	}
	gain := func(c []int, f, level int) (n int) { // pairs that a level of f adds to a case
		for g, b := range c {
			switch {
			case b < 0 || g == f:
			case g < f && open[pair{g, b, f, level}], g > f && open[pair{f, level, g, b}]:
				n++
			}
		}
		return n
	}
	for _, first := range order {
		if !open[first] {
			continue
		}
		c := make([]int, len(levels))
		for f := range c {
			c[f] = -1
		}
		c[first.f], c[first.g] = first.a, first.b
		for _, f := range r.Perm(len(levels)) {
			if c[f] >= 0 {
				continue
			}
			best := -1
			for _, level := range r.Perm(levels[f]) {
				if n := gain(c, f, level); n > best {
					best, c[f] = n, level
				}
			}
		}
		for f := range c {
			for g := range f {
				delete(open, pair{g, c[g], f, c[f]})
			}
		}
		cases = append(cases, c)
	}
	return cases
}

func random(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), 0))
}
