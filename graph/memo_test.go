package graph

import (
	"fmt"
	"math"
	"testing"
)

// Nodes that differ in anything that infer looks at have keys of their own.
func TestMemoKeys(t *testing.T) {
	types := []Type{
		TypeOf(F32), TypeOf(BF16), TypeOf(F32, Size(4)), TypeOf(F32, Size(4), Size(4)), TypeOf(F32, Units(4, 1)), TypeOf(F32, Units(4, 2)), TypeOf(F32, Symbol(Tokens)), TypeOf(F32, Symbol(Seqs)),
		TypeOf(F32, Pack(Field{"a", 2, 1}, Field{"b", 2, 1})), TypeOf(F32, Pack(Field{"a", 2, 1}, Field{"c", 2, 1})), TypeOf(F32, Pack(Field{"ab", 2, 1}, Field{"", 2, 1})), TypeOf(F32, Size(4), Symbol(Tokens)),
		{DType: F32, Dims: []Dim{Size(4)}, Layout: Layout{Kind: Partial}}, {DType: F32, Dims: []Dim{Size(4)}, Layout: SplitOn(0, 1)}, {DType: F32, Dims: []Dim{Size(4), Size(4)}, Layout: SplitOn(0, 1)}, {DType: F32, Dims: []Dim{Size(4), Size(4)}, Layout: SplitOn(1, 1)},
		{DType: F32, Dims: []Dim{Size(4)}, Layout: Layout{Sharded, 0, []Placement{{}}}}, {DType: F32, Dims: []Dim{Size(4)}, Layout: Layout{Sharded, 0, []Placement{{Cover, 8}}}}, {DType: F32, Dims: []Dim{Size(4)}, Layout: Layout{Sharded, 0, []Placement{{Cover, 16}}}},
		{DType: F32, Dims: []Dim{Size(4)}, Context: Layout{Kind: Partial}}, {DType: F32, Dims: []Dim{Size(4)}, Layout: Layout{Kind: Partial}, Context: Layout{Kind: Partial}},
	}
	attrs := []any{nil, 0, 1, 256, 0.0, 1.0, math.Inf(1), "", "a", "1", true}
	seen := map[string]string{}
	look := func(what string, k key) {
		if other, ok := seen[string(k)]; ok {
			t.Errorf("%s and %s have the same key", what, other)
		}
		seen[string(k)] = what
	}
	for _, a := range types {
		look(a.String(), key(nil).typ(&a))
		for _, b := range types {
			look(a.String()+", "+b.String(), key(nil).typ(&a).typ(&b))
		}
	}
	clear(seen)
	for _, a := range attrs {
		for _, b := range attrs {
			look(fmt.Sprintf("%T %v, %T %v", a, a, b, b), key(nil).attr(a).attr(b))
		}
	}
}

// TestMemo: the memo is keyed by the operation, the attributes and the ranks as well.
func TestMemo(t *testing.T) {
	var m memo
	x := &Value{Name: "x", Type: Type{DType: F32, Dims: []Dim{Symbol(Tokens), Pack(Field{"a", 2, 1}, Field{"b", 4, 1})}, Layout: Layout{}}}
	for range 2 {
		for _, c := range []struct{ op, name, want string }{
			{"field", "a", "f32[t 2/1]"}, {"field", "b", "f32[t 4/1]"}, {"silu", "", "f32[t a:2/1|b:4/1]"}, {"field", "c", ""},
		} {
			n := &Node{Op: byName[c.op], Args: []*Value{x}}
			if c.name != "" {
				n.Attrs = Attrs{"name": c.name, "axis": 1}
			}
			types, err := m.infer(n, Mesh{2})
			if c.want == "" != (err != nil) || err == nil && types[0].String() != c.want {
				t.Errorf("%s %s gives %v, %v; want %s", c.op, c.name, types, err, c.want)
			}
		}
	}
	if len(m.known) != 3 {
		t.Errorf("%d nodes are remembered, want 3", len(m.known))
	}
	split := &Value{Name: "y", Type: Type{DType: F32, Dims: []Dim{Symbol(Tokens), Units(4, 1)}, Layout: SplitOn(1, 1)}}
	for _, ranks := range []int{2, 8} {
		before := len(m.known)
		if _, err := m.infer(&Node{Op: byName["silu"], Args: []*Value{split}}, Mesh{ranks}); err != nil || len(m.known) != before+1 {
			t.Errorf("on %d ranks: %v, and %d more are remembered, want 1", ranks, err, len(m.known)-before)
		}
	}
}

// TestCheckerAgain: a graph that changes after it was checked, in memory that its types share, is
// found by the checker that has seen it.
func TestCheckerAgain(t *testing.T) {
	g := NewGraph("g", ModelStage, 1)
	x, err := g.AddLeaf("input", "x", TypeOf(F32, Symbol(Tokens), Size(4)), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := g.Add("silu", nil, []string{"y"}, x)
	if err != nil {
		t.Fatal(err)
	}
	var c Checker
	if err := c.Check(g); err != nil {
		t.Fatal(err)
	}
	x.Type = x.Type.clone()
	n.Results[0].Type.Dims[1].Fields[0].Size = 8
	if err := c.Check(g); err == nil || err.Error() != "y: silu: y is written as f32[t 8]; the operation gives f32[t 4]" {
		t.Error(err)
	}
}
