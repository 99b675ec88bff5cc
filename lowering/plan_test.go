package lowering

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

func TestPlan(t *testing.T) {
	p, err := NewPlan(lower(t, `graph "g" stage=partitioned ranks=3
input %x : f32[t 8]
input %rows : i32[o]
input %seg : i32[s 3]
param @up : f32[4/1 8] shard(0: split)
param @down : bf16[8 4/1] shard(1: split)
param @taps : f32[4/1 3] shard(0: split)
param @A_log : f32[4/1] shard(0: split)
state %layers.0.past : f32[s 4/1 2] shard(1: split)
%A = neg_exp @A_log
%a = matmul %x @up
%layers.0.c %layers.0.new = conv1d %a @taps %layers.0.past %seg
%m = scale %layers.0.c %A
%p = matmul %m @down
%q = quantize %p {to=f16}
%layers.0.r %p2 = all_reduce %q %p
%w = all_gather %layers.0.c
%l = select_rows %w %rows
%e = reduce_scatter %p
output w = %l
output r = %p2
`))
	if err != nil {
		t.Fatal(err)
	}
	z := graph.Sizes{Tokens: 5, Seqs: 2, Rows: 1}
	for i, want := range []RankPlan{
		{Weights: 32 + 16 + 12 + 4, Constants: 64, State: 64},
		{Weights: 32 + 16 + 12 + 4, Constants: 64, State: 64},
		{Weights: 2 * (32 + 16 + 12 + 4), Constants: 64, State: 64},
	} {
		got := p.Ranks[i]
		if got.Weights != want.Weights || got.Constants != want.Constants || got.State != want.State {
			t.Errorf("rank %d: %+v, want %+v", i, got, want)
		}
		if got.Launches != 6 || got.Copies != 0 || got.Collectives != 3 {
			t.Errorf("rank %d: %d launches, %d copies, %d collectives", i, got.Launches, got.Copies, got.Collectives)
		}
		if s := got.Arena.String(); s != "320·t + 64·o" && s != "384·t + 64·o" {
			t.Errorf("rank %d: arena of %s bytes", i, s)
		}
	}
	for i, want := range []struct {
		name, kind, block, elems, bytes string
		sent                            float64
	}{
		{"layers.0.r", "all_reduce", "layers.0", "16·t", "48·t", 2 * 2 * 48 * 5 / 3.0},
		{"w", "all_gather", "", "4·t", "16·t", 2 * 16 * 5 / 3.0},
		{"e", "reduce_scatter", "", "8·t", "32·t", 2 * 32 * 5 / 3.0},
	} {
		c := p.Collectives[i]
		if c.Name != want.name || c.Kind != want.kind || c.Block != want.block || c.Elems.String() != want.elems || c.Bytes.String() != want.bytes || c.SentPerRank(z) != want.sent {
			t.Errorf("collective %d is %+v and sends %g, want %+v", i, c, c.SentPerRank(z), want)
		}
	}
	if _, err := NewPlan(nil); err == nil {
		t.Error("a plan of nothing")
	}
	for want, change := range map[string]func(s *Schedule){
		`collective 0 is "d = all_reduce c {acc=\"f32\"}" on rank 1`: func(s *Schedule) { s.Steps[5].Attrs = graph.Attrs{"acc": "f32"} },
		`collective 0 is "d = all_reduce c" on rank 1`:               func(s *Schedule) { s.Steps[5].Args[0].Type.DType = graph.BF16 },
		`collective 1 is "i = all_reduce h" on rank 1`:               func(s *Schedule) { s.Steps[14].Results[0].Type.DType = graph.BF16 },
		"rank 1 takes part in 1 collectives, rank 0 in 2":            func(s *Schedule) { s.Steps = s.Steps[:14] },
	} {
		apart := lower(t, twoRanks)
		change(apart[1])
		if _, err := NewPlan(apart); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// BenchmarkLower lowers, and checks, a graph of 64 blocks for 8 ranks.
func BenchmarkLower(b *testing.B) {
	g := graph.NewGraph("g", graph.PartitionedStage, 8)
	add := func(op, name string, args ...*graph.Value) *graph.Value {
		n, err := g.Add(op, nil, []string{name}, args...)
		if err != nil {
			b.Fatal(err)
		}
		return n.Results[0]
	}
	param := func(name string, axis, rows, cols int) *graph.Value {
		t := graph.TypeOf(graph.F32, graph.Units(rows, 1), graph.Units(cols, 1))
		t.Layout = graph.SplitOn(axis, 1)
		v, err := g.AddLeaf("param", name, t, nil)
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	h, err := g.AddLeaf("input", "x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Units(2560, 1)), nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 64 {
		scope := fmt.Sprintf("layers.%d.", i)
		x := add("matmul", scope+"x", h, param(scope+"up", 0, 5120, 2560))
		for j := range 14 {
			x = add("silu", fmt.Sprint(scope, "s", j), x)
		}
		x = add("matmul", scope+"y", x, param(scope+"down", 1, 2560, 5120))
		h = add("add", scope+"h", h, add("all_reduce", scope+"r", x))
	}
	if err := g.AddOutput("h", h); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Lower(g)
		if err == nil {
			err = CheckAll(s)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
