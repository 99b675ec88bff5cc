package passes

import (
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestFuseLegal: what the fused operation refuses, and what would lie otherwise,
// stays apart. No rule of today's patterns leaves such a case to graphs that check.
func TestFuseLegal(t *testing.T) {
	g, err := graph.Parse(`graph "g" stage=partitioned ranks=2
input %x : f32[t 4]
input %y : f32[t 6/1]
param @w : f32[4 6/1] shard(1: split)
%v = shard %y
%p = matmul %v @w
`)
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) *graph.Value { v, _ := g.Value(name); return v }
	f := findFusions(g)
	for _, c := range []struct {
		gate, factor, result string
		want                 bool
	}{
		{"x", "p", "p", true},
		{"x", "x", "x", true},
		{"p", "x", "p", false}, // refused: silu of a partial sum
		{"x", "p", "x", false}, // a partial sum in the place of a whole value
		{"x", "y", "x", false}, // another shape
	} {
		l := &fusion{op: "silu_mul", args: []*graph.Value{value(c.gate), value(c.factor)}, results: []*graph.Value{value(c.result)}}
		if got := f.legal(l); got != c.want {
			t.Errorf("silu_mul %s %s for %s: %v", c.gate, c.factor, c.result, got)
		}
	}
}

// TestFuseTwice: what is fused stays as it is, and what is not is not changed.
func TestFuseTwice(t *testing.T) {
	g, err := graph.Parse("graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\n%g = silu %x\n%y = mul %x %g\noutput y = %y\n")
	if err != nil {
		t.Fatal(err)
	}
	before := graph.Print(g)
	once, err := Compile(g, Options{})
	if err != nil || len(once.Nodes) != 2 || graph.Print(g) != before {
		t.Fatalf("%v, %s", err, graph.Print(once))
	}
	if twice, err := Compile(once, Options{}); err != nil || !graph.Equal(twice, once) {
		t.Errorf("%v, fused again", err)
	}
}
