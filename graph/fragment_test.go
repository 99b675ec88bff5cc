package graph

import (
	"strings"
	"testing"
)

// TestFragments: what types, storage, parts and attributes write is read by itself,
// and nothing may come after it.
func TestFragments(t *testing.T) {
	for _, text := range []string{"f32[t x:6/2|B:4/2] shard(1: x=split B=cover/6)", "i32[s 3]", "bf16[1] partial"} {
		if typ, err := ParseType(text); err != nil || typ.String() != text {
			t.Errorf("%s: read as %s, %v", text, typ, err)
		}
	}
	for _, text := range []string{`f32[6] from "a"[0:2:3] "b" shape(6 1)`, "f32[s 6/2 1] field(1: x) of %layers.0.c : f32[s x:6/2|B:4/2 1]"} {
		typ, storage, part, err := ParseStored(text)
		got := typ.String()
		if storage != nil {
			got += storage.String()
		}
		if part != nil {
			got += part.String()
		}
		if err != nil || got != text {
			t.Errorf("%s: read as %s, %v", text, got, err)
		}
	}
	norm, _ := Lookup("rotary")
	if a, err := ParseAttrs(norm, "{dims=2 theta=10.5}"); err != nil || a.Int("dims") != 2 || a.Float("theta") != 10.5 {
		t.Errorf("attributes %v, %v", a, err)
	}
	_, typeErr := ParseType("f32[6] x")
	_, _, _, storedErr := ParseStored("f32[6] from \"a\" field")
	_, attrErr := ParseAttrs(norm, "{dims=2 theta=1} x")
	_, lacking := ParseAttrs(norm, "")
	for want, err := range map[string]error{`unexpected "x"`: typeErr, `unexpected "field"`: storedErr, `rotary: unexpected "x"`: attrErr, "rotary: attribute theta is missing": lacking} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestCostOf: by types alone an operation costs what a node does, and operands that
// do not fit, or are too few, are an error.
func TestCostOf(t *testing.T) {
	for _, c := range deriveCases {
		g, n := deriveGraph(t, c.leaves, c.node)
		types, err := infer(n, g.Ranks)
		if err != nil {
			continue
		}
		var args []Type
		for _, v := range n.Args {
			args = append(args, v.Type)
		}
		got, err := CostOf(n.Op, n.Attrs, args, types)
		for _, typ := range types {
			n.Results = append(n.Results, &Value{Type: typ})
		}
		want := n.Cost()
		if err != nil || got.FLOPs.String() != want.FLOPs.String() || got.Read.String() != want.Read.String() || got.Write.String() != want.Write.String() {
			t.Errorf("%s: %v, %v; want %v", c.node, got, err, want)
		}
		if n.Op.Rule != nil {
			if _, err := CostOf(n.Op, n.Attrs, args[1:], types); err == nil {
				t.Errorf("%s: an operand too few costs something", c.node)
			}
		}
		if _, err := CostOf(n.Op, n.Attrs, args, nil); err == nil {
			t.Errorf("%s: costs something without a result", c.node)
		}
	}
}
