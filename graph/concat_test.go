package graph

import (
	"strings"
	"testing"
)

// concatCases are as deriveCases.
var concatCases = []struct{ name, leaves, node, want string }{
	{"all whole", "x f32[t 6/2]; y f32[t 3]", `concat x y {names="h|e"}`, "f32[t h:6/2|e:3]"},
	{"four", "x f32[t 1]; y f32[t 2]; z f32[t 3]", `concat x y z x {names="a|b|c|d"}`, "f32[t a:1|b:2|c:3|d:1]"},
	{"names of the operands' fields do not matter", "x f32[t h:6]; y f32[t h:3]", `concat x y {names="a|b"}`, "f32[t a:6|b:3]"},
	{"all split", "x f32[t 6/2] shard(1: split); y f32[t 3] shard(1: split)", `concat x y {names="h|e"}`,
		"f32[t h:6/2|e:3] shard(1: h=split e=split)"},
	{"whole beside split and covered", "x f32[t 6/2] shard(1: split); y f32[t 3]; z f32[t 4/2] shard(1: cover/6)", `concat x y z {names="x|y|B"}`,
		"f32[t x:6/2|y:3|B:4/2] shard(1: x=split y=whole B=cover/6)"},
	{"all partial", "p f32[t 6] partial; q f32[t 3] partial", `concat p q {names="h|e"}`, "f32[t h:6|e:3] partial"},
	{"more axes", "x f32[t 2 6]; y f32[t 2 3] shard(2: split)", `concat x y {names="h|e"}`, "f32[t 2 h:6|e:3] shard(2: h=whole e=split)"},
	{"bf16", "x bf16[t 6]; y bf16[t 3]", `concat x y {names="h|e"}`, "bf16[t h:6|e:3]"},

	{"one value", "x f32[t 6]", "concat x {names=h}", "error: 1 names for 1 values, of which there must be at least 2"},
	{"too few names", "x f32[t 6]; y f32[t 3]", "concat x y {names=h}", "error: 1 names for 2 values, of which there must be at least 2"},
	{"too many names", "x f32[t 6]; y f32[t 3]", `concat x y {names="h|e|f"}`, "error: 3 names for 2 values, of which there must be at least 2"},
	{"two formats", "x f32[t 6]; y bf16[t 3]", `concat x y {names="h|e"}`, "error: operand 1 is bf16; all must have one float format"},
	{"no float format", "x i32[t 6]; y i32[t 3]", `concat x y {names="h|e"}`, "error: operand 0 is i32; all must have one float format"},
	{"rows differ", "x f32[t 6]; y f32[o 3]", `concat x y {names="h|e"}`, "error: operand 1 is f32[o 3]; all but the last axis must be as in f32[t 6]"},
	{"axes differ", "x f32[t 6]; y f32[t 2 3]", `concat x y {names="h|e"}`, "error: operand 1 is f32[t 2 3]; all but the last axis must be as in f32[t 6]"},
	{"no axis but the last", "x f32[6]; y f32[3]", `concat x y {names="h|e"}`, "error: operand 0 is f32[6]; all but the last axis must be as in f32[6]"},
	{"a packed operand", "x f32[t 6]; y f32[t a:2|b:1]", `concat x y {names="h|e"}`, "error: operand 1 is f32[t a:2|b:1]; its last axis must be one field"},
	{"symbolic last axis", "x f32[6 t]; y f32[6 t]", `concat x y {names="h|e"}`, "error: operand 0 is f32[6 t]; its last axis must be one field"},
	{"another axis split", "x f32[t 2 6]; y f32[t 2 3] shard(1: split)", `concat x y {names="h|e"}`, "error: operand 1 is split on axis 1; all must be in the same way, or be split on the last"},
	{"another axis split alike", "x f32[t 2 6] shard(1: split); y f32[t 2 3] shard(1: split)", `concat x y {names="h|e"}`, "f32[t 2 h:6|e:3] shard(1: split)"},
	{"rows split alike", "x f32[t 6] shard(0: even); y f32[t 3] shard(0: even)", `concat x y {names="h|e"}`, "f32[t h:6|e:3] shard(0: even)"},
	{"rows split in two ways", "x f32[t 6] shard(0: even); y f32[t 3] shard(0: sequence)", `concat x y {names="h|e"}`,
		"error: operand 0 is split on axis 0; all must be in the same way, or be split on the last"},
	{"rows of one split", "x f32[t 6]; y f32[t 3] shard(0: even)", `concat x y {names="h|e"}`, "error: operand 1 is split on axis 0; all must be in the same way, or be split on the last"},
	{"some partial", "x f32[t 6]; p f32[t 3] partial", `concat x p {names="h|e"}`, "error: some operands are partial sums and others are not; all_reduce them first"},
	{"partial beside split", "p f32[t 6] partial; x f32[t 3] shard(1: split)", `concat p x {names="h|e"}`,
		"error: some operands are partial sums and others are not; all_reduce them first"},
}

func TestConcat(t *testing.T) {
	for _, c := range concatCases {
		t.Run(c.name, func(t *testing.T) { checkDerived(t, c.leaves, c.node, c.want) })
	}
}

// TestConcatNames: what cannot name a field is refused when the graph is checked.
func TestConcatNames(t *testing.T) {
	for names, want := range map[string]string{
		"h|h":   `different names, found "h"`,
		"h|":    `different names, found ""`,
		"h|e f": `different names, found "e f"`,
	} {
		b := New("t")
		x := b.Input("x", TypeOf(F32, Symbol(Tokens), Size(6)))
		b.Output("y", b.Concat("y", names, x, x))
		if _, err := b.Graph(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", names, err, want)
		}
	}
}
