package passes

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
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
	f := findFusions(g, patternsBySize(false), nil)
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

// TestFewLaunches: what a layer of a model launches for a token on one rank, as it is fused
// where every bit stays and as it is fused for launches.
func TestFewLaunches(t *testing.T) {
	for name, want := range map[string][2]int{
		"mamba-a":      {10, 5},
		"mamba-b":      {12, 8}, // in_proj and out_proj have biases
		"mamba2-g1":    {10, 4},
		"mamba2-g4":    {10, 4},
		"mamba2-clamp": {12, 7}, // they, too
		"falcon-mamba": {13, 5},

		"jamba layers.0": {19, 7}, // with an MLP
		"bamba layers.0": {16, 6},
		"zamba2":         {10, 5}, // a norm by groups is by itself
	} {
		name, layer, ok := strings.Cut(name, " ")
		if !ok {
			layer = "layers.1"
		}
		c, err := checkpoint.Open("../testdata/golden/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for i, how := range []Fuse{Exactly, ForLaunches} {
			g, err := Compile(c.Graph, Options{Fuse: how})
			if err != nil {
				t.Fatal(err)
			}
			if got := launchesOf(g, layer+"."); got != want[i] {
				t.Errorf("%s %s, fuse %d: %d launches, want %d", name, layer, how, got, want[i])
			}
		}
		c.Close()
	}
}

// launchesOf counts the operations of a layer that depend on more than parameters.
func launchesOf(g *graph.Graph, prefix string) int {
	n, constant := 0, map[*graph.Value]bool{}
	for _, v := range g.Nodes {
		fixed := v.Op.Name == "param" || v.Op.Class != graph.Leaf && !slices.ContainsFunc(v.Args, func(a *graph.Value) bool { return !constant[a] })
		for _, r := range v.Results {
			constant[r] = fixed
		}
		if v.Op.Class == graph.Compute && !fixed && strings.HasPrefix(v.Name(), prefix) {
			n++
		}
	}
	return n
}

// TestFuseMatches: values between the operations of a fused one have no other user, in
// whatever order those that commute have their operands.
func TestFuseMatches(t *testing.T) {
	for _, c := range []struct{ nodes, want string }{
		{"%m = matmul %n @w\n%y = add %m %r", "norm_matmul_add"},
		{"%m = matmul %n @w\n%y = add %r %m", "norm_matmul_add"},
		{"%m = matmul %n @w\n%y = add %m %m", "norm_matmul add"}, // one fusion takes both
		{"%m = matmul %n @w\n%y = add %m %n", "rmsnorm matmul_add"},
		{"%m = matmul %n @w\n%q = silu %m\n%y = add %q %m", "norm_matmul silu add"},
		{"%m = matmul %n @w\n%q = silu %n\n%y = add %q %m", "rmsnorm silu matmul_add"},
	} {
		got := fusedOps(t, "graph \"g\" stage=model ranks=1\ninput %x : f32[t 4]\ninput %r : f32[t 4]\nparam @g : f32[4]\nparam @w : f32[4 4]\n"+
			"%n = rmsnorm %x @g {eps=1e-5}\n"+c.nodes+"\noutput y = %y\n")
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.nodes, got, c.want)
		}
	}
	if _, err := Compile(mustFused(t), Options{Fuse: ForLaunches}); err == nil || !strings.Contains(err.Error(), "fused already") {
		t.Errorf("a fused graph is fused for launches: %v", err)
	}
}

func mustFused(t *testing.T) *graph.Graph {
	g, err := graph.Parse("graph \"g\" stage=fused ranks=1\ninput %x : f32[t 4]\n%y = silu %x\noutput y = %y\n")
	if err != nil {
		t.Fatal(err)
	}
	return g
}
