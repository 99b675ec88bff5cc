package covering

import (
	"fmt"
	"slices"
	"testing"
)

// TestPairs: every pair is covered, with few cases, which are the same each time,
// and one factor alone has a case for every level.
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
		if want := most * second; len(cases) != want { // the least; of other levels it may take more
			t.Errorf("%v: %d cases, want %d", levels, len(cases), want)
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

// TestSpread: every level of the first factors is in a case, and every pair of the others, in no
// more cases than that takes.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		each, levels []int
		want         int
	}{{[]int{17}, nil, 17}, {[]int{17}, []int{3}, 17}, {[]int{17}, []int{7, 3}, 21}, {[]int{4}, []int{3, 2, 2}, 6}, {[]int{1}, []int{5}, 5},
		{[]int{17, 20}, []int{3, 2}, 20}, {[]int{5, 2}, []int{4, 3}, 12}} {
		cases, first, rest := spread("a", c.each, c.levels...), map[[2]int]bool{}, map[string]bool{}
		for _, x := range cases {
			for f := range c.each {
				first[[2]int{f, x[f]}] = true
			}
			rest[fmt.Sprint(x[len(c.each):])] = true
		}
		if len(cases) != c.want {
			t.Errorf("%v, %v: %d cases, want %d", c.each, c.levels, len(cases), c.want)
		}
		for f, n := range c.each {
			for level := range n {
				if !first[[2]int{f, level}] {
					t.Errorf("%v, %v: no case has level %d of factor %d", c.each, c.levels, level, f)
				}
			}
		}
		if c.levels == nil {
			continue
		}
		for _, x := range Pairs("a", c.levels...) {
			if !rest[fmt.Sprint(x)] {
				t.Errorf("%v, %v: no case has %v", c.each, c.levels, x)
			}
		}
	}
}

// TestDrawn: each four or twelve neighbours have one in what is drawn, which is the same each time,
// and other tests draw others.
func TestDrawn(t *testing.T) {
	list := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	for all, n := range map[string]int{"": 12, "ci": 4} {
		t.Setenv("KRAIT_TEST_ALL", all)
		var near []int
		for _, x := range Drawn(t, list) {
			near = append(near, x/n)
		}
		if want := []int{0, 1, 2, 3}[:(len(list)+n-1)/n]; !slices.Equal(near, want) || !slices.Equal(Drawn(t, list), Drawn(t, list)) {
			t.Errorf("KRAIT_TEST_ALL=%s: %v and %v are drawn", all, Drawn(t, list), Drawn(t, list))
		}
	}
	t.Setenv("KRAIT_TEST_ALL", "")
	seen := map[int]bool{}
	for i := range 80 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			for _, n := range Drawn(t, list) {
				seen[n] = true
			}
		})
	}
	if len(seen) != len(list) {
		t.Errorf("80 tests draw %v only", seen)
	}
	t.Setenv("KRAIT_TEST_ALL", "fixed")
	if !slices.Equal(Drawn(t, list), list) {
		t.Error("with KRAIT_TEST_ALL not all are there")
	}
}

// TestLevels: by default there are at most three cases, of different models; in CI each pair of
// what [Each] has after the models, and of what [Cases] has; with KRAIT_TEST_ALL more.
func TestLevels(t *testing.T) {
	for _, c := range []struct {
		all         string
		cases, each int
	}{{"", 3, 3}, {"ci", 12, 12}, {"fixed", 24, 20}} {
		t.Setenv("KRAIT_TEST_ALL", c.all)
		if n := len(Cases(t, 4, 3, 2)); n != c.cases {
			t.Errorf("KRAIT_TEST_ALL=%s: Cases returns %d, want %d", c.all, n, c.cases)
		}
		if n := len(Each(t, []int{5}, 4, 3)); n != c.each {
			t.Errorf("KRAIT_TEST_ALL=%s: Each returns %d, want %d", c.all, n, c.each)
		}
		if models := map[int]bool{}; c.all == "" {
			for _, x := range Each(t, []int{20}, 3) {
				models[x[0]] = true
			}
			if len(models) != 3 || len(Cases(t, 3, 2)) != 3 {
				t.Errorf("by default Each tries the models %v of 20, and Cases %v", models, Cases(t, 3, 2))
			}
		}
	}
}
