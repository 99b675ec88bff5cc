package validate

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// deltaMixer is a gated delta net with heads of keys and of values, and gates that are numbers of a
// head or, as in Kimi delta attention, of each column of keys.
type deltaMixer struct {
	keys, values int
	vector       bool
}

// build is a block of hidden channels, with heads of keys of 4 and of values of 3.
func (m deltaMixer) build(t *testing.T, hidden int) *graph.Graph {
	const n, p, width = 4, 3, 4
	b := graph.New("delta")
	h := graph.Size(hidden)
	param := func(l *graph.Builder, name string, dims ...graph.Dim) *graph.Value {
		return l.Param(name, graph.TypeOf(graph.F32, dims...), nil)
	}
	named := func(name string, d graph.Dim) graph.Field {
		f := d.Fields[0]
		f.Name = name
		return f
	}
	keys, values, heads := graph.Units(m.keys*n, n), graph.Units(m.values*p, p), graph.Units(m.values, 1)
	decays := heads
	if m.vector {
		decays = graph.Units(m.values*n, n)
	}
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), h))
	seg := b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
	l := b.In("layers", 0)
	in := l.RMSNorm("norm", x, l.Plus("norm_1", param(l, "norm_w", h), 1), 1e-6)
	packed := graph.Pack(named("q", keys), named("k", keys), named("v", values))
	qkv := l.MatMul("in_proj_qkv", in, param(l, "qkv_w", packed, h))
	conv := l.State("conv", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), packed, graph.Size(width-1)))
	u := l.Map("u", "silu", l.Conv1D("convolved", qkv, param(l, "conv_w", packed, graph.Size(width)), conv, seg))
	q, k := l.HeadL2Norm("qn", l.Field("q", u), 1e-6), l.HeadL2Norm("kn", l.Field("k", u), 1e-6)
	beta := l.Map("beta", "sigmoid", l.MatMul("b", in, param(l, "b_w", heads, h)))
	step := l.Map("step", "softplus", l.Bias("a_b", l.MatMul("a", in, param(l, "a_w", decays, h)), param(l, "dt_bias", decays)))
	g := l.Scale("g", step, l.Map("A", "neg_exp", param(l, "A_log", heads)))
	state := l.State("delta", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), heads, graph.Size(n), graph.Size(p)))
	y := l.DeltaScan("y", q, k, l.Field("v", u), g, beta, state, seg, 0.5)
	y = l.HeadRMSNorm("normed", y, param(l, "head_w", graph.Size(p)), 1e-6)
	y = l.Mul("gated", y, l.Map("gate", "silu", l.MatMul("z", in, param(l, "z_w", values, h))))
	b.Output("y", l.Add("h", x, l.MatMul("out_proj", y, param(l, "out_w", h, values))))
	model, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestDeltaRanks: a gated delta net of any heads has one all_reduce, of its result, and no other
// collective, on 2 to 16 ranks; the proof says that it is the least, execution that it is right.
func TestDeltaRanks(t *testing.T) {
	const hidden = 8
	for i, m := range []deltaMixer{{1, 2, false}, {2, 4, false}, {16, 16, true}, {16, 48, false}, {5, 15, true}, {3, 3, false}} {
		t.Run(fmt.Sprintf("%+v", m), func(t *testing.T) {
			model := m.build(t, hidden)
			for ranks := 2; ranks <= 16; ranks++ {
				if !goldens.All() && ranks > 4 && (ranks+i)%4 != 0 {
					continue
				}
				unpacked, err := passes.Compile(model, passes.Options{Stop: graph.UnpackedStage, Ranks: ranks})
				if err != nil {
					t.Fatal(err)
				}
				g, err := passes.Compile(unpacked, passes.Options{Stop: graph.PartitionedStage, Ranks: ranks})
				if err != nil {
					t.Fatal(err)
				}
				c, err := prove.Prove(unpacked, g, prove.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range g.Nodes {
					if n.Op.Class == graph.Collective && (n.Op.Name != "all_reduce" || n.Results[0].Type.Elems().String() != fmt.Sprintf("%d·t", hidden)) {
						t.Errorf("%d ranks: %s of %s", ranks, n.Op.Name, n.Results[0].Type)
					}
				}
				if c.Collectives != 1 || c.Minimum.Collectives != 1 {
					t.Errorf("%d ranks: %d collectives, the least is %+v", ranks, c.Collectives, c.Minimum)
				}
				executed(t, uint64(i), model, g)
			}
		})
	}
}
