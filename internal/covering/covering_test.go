package covering

import (
	"fmt"
	"slices"
	"testing"
)

// TestPairs: every pair is covered, with few cases, which are the same each time.
func TestPairs(t *testing.T) {
	for _, levels := range [][]int{{2, 3}, {17, 5, 3}, {17, 3, 2, 2, 2}, {1, 4, 1}, {5}} {
		cases, seen := Pairs("a", levels...), map[string]bool{}
		most, second := 1, 1
		for _, n := range levels {
			if n > most {
				most, second = n, most
			} else {
				second = max(second, n)
			}
		}
		if len(levels) > 1 && len(cases) > most*second*3/2 {
			t.Errorf("%v: %d cases", levels, len(cases))
		}
		for _, c := range cases {
			for f := range c {
				for g := range f {
					seen[fmt.Sprint(g, c[g], f, c[f])] = true
				}
			}
		}
		for f := range levels {
			for g := range f {
				for a := range levels[f] {
					for b := range levels[g] {
						if !seen[fmt.Sprint(g, b, f, a)] {
							t.Errorf("%v: no case has level %d of factor %d and %d of %d", levels, b, g, a, f)
						}
					}
				}
			}
		}
		if again := Pairs("a", levels...); !slices.EqualFunc(again, cases, slices.Equal) {
			t.Errorf("%v: other cases the second time", levels)
		}
	}
}
