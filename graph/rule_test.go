package graph

import (
	"strings"
	"testing"
)

func TestParseRuleRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"t k, n k":            "no ->",
		"t k -> t n":          "result letter n is in no operand",
		"t (g q -> t g":       "( without )",
		"t ((g q)) -> t g":    "unexpected",
		"t () -> t":           "unexpected",
		"t (g! q) -> t":       "q follows a fixed letter",
		"t K -> t":            "unexpected",
		"*, t -> *":           "* stands alone",
		"(g q), (g r) -> g":   "begin alike and do not extend each other",
		"(g q p!), g r -> g)": "unexpected",
	} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestBindSizes(t *testing.T) {
	for _, c := range []struct {
		rule    string
		dims    [][]Dim
		letters string
		sizes   []int
		err     string
	}{
		// The scan of Mamba: one group, whose number follows from B.
		{rule: "(g q), (g q) n!, (g n!) -> (g q)", dims: [][]Dim{{Size(12)}, {Size(12), Size(4)}, {Size(4)}}, letters: "gqn", sizes: []int{1, 12, 4}},
		{rule: "(g q), (g q) n!, (g n!) -> (g q)", dims: [][]Dim{{Size(12)}, {Size(12), Size(4)}, {Size(8)}}, letters: "gqn", sizes: []int{2, 6, 4}},
		// Head sizes come from the unit where nothing else gives them.
		{rule: "(h p!) -> (h p!)", dims: [][]Dim{{Units(20, 5)}}, letters: "hp", sizes: []int{4, 5}},
		{rule: "(g q) -> (g q)", dims: [][]Dim{{Size(12)}}, err: "cannot tell the sizes of (g q)"},
		{rule: "(g q), g -> (g q)", dims: [][]Dim{{Size(12)}, {Size(5)}}, err: "(g q) is 12 in operand 0, which 5 does not divide"},
		{rule: "(g q), g, q -> (g q)", dims: [][]Dim{{Size(12)}, {Size(3)}, {Size(5)}}, err: "(g q) is 12 in operand 0, its letters give 15"},
		{rule: "k, k -> k", dims: [][]Dim{{Size(3)}, {Size(4)}}, err: "k is 4 in operand 1 and 3 before"},
		{rule: "(g q), g -> g", dims: [][]Dim{{Symbol(Tokens)}, {Size(3)}}, err: "symbolic size t, but (g q) needs a fixed size"},
		{rule: "k -> k", dims: [][]Dim{{Size(3), Size(4)}}, err: "operand 0 has 2 axes"},
	} {
		var in []Type
		for _, d := range c.dims {
			in = append(in, TypeOf(F32, d...))
		}
		b, err := rule(c.rule).bind(in, nil)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %v: got %v, want an error with %q", c.rule, c.dims, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %v: %v", c.rule, c.dims, err)
			continue
		}
		for i, n := range c.sizes {
			if got := b.size(c.letters[i]); got != n {
				t.Errorf("%s %v: %c is %d, want %d", c.rule, c.dims, c.letters[i], got, n)
			}
		}
	}
}
