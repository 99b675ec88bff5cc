package passes

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// fuse makes one operation of neighbours where there is one. It is last: strategies,
// proofs and drawings speak of the operations apart. It writes a fused operation in the place of the last of the nodes that it
// stands for: there all its operands exist, and nobody has needed its results.
func fuse(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	f := findFusions(g)
	r := rewrite(g, graph.FusedStage, g.Ranks)
	for _, n := range g.Nodes {
		var err error
		switch l := f.last[n]; {
		case l != nil:
			args := make([]*graph.Value, len(l.args))
			for i, v := range l.args {
				args[i] = r.to[v]
			}
			_, err = r.node(n, l.op, l.attrs, names(l.results), l.results, args...)
		case !f.taken[n]:
			err = r.copy(n)
		}
		if err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// fusion is an operation that stands for several.
type fusion struct {
	op      string
	attrs   graph.Attrs
	args    []*graph.Value
	results []*graph.Value // of the nodes, that stay
	inner   []*graph.Node  // the nodes but the last
}

// fusions says which nodes of a graph become one with others.
type fusions struct {
	g     *graph.Graph
	uses  map[*graph.Value][]*graph.Node
	index map[*graph.Node]int
	last  map[*graph.Node]*fusion // by the last of its nodes
	taken map[*graph.Node]bool
}

// patterns finds fusions by the operation of their last node. A node is of one
// fusion only: of that which ends first.
var patterns = map[string]func(f *fusions, last *graph.Node) *fusion{
	"add":      (*fusions).addScaled,
	"mul":      (*fusions).siluMul,
	"rmsnorm":  (*fusions).addRMSNorm,
	"silu":     (*fusions).convSilu,
	"softplus": (*fusions).biasSoftplus,
}

func findFusions(g *graph.Graph) *fusions {
	f := &fusions{g, usesOf(g), map[*graph.Node]int{}, map[*graph.Node]*fusion{}, map[*graph.Node]bool{}}
	for i, n := range g.Nodes {
		f.index[n] = i
	}
	for _, n := range g.Nodes {
		find := patterns[n.Op.Name]
		if find == nil {
			continue
		}
		if l := find(f, n); l != nil && f.legal(l) {
			f.last[n] = l
			for _, m := range append(l.inner, n) {
				f.taken[m] = true
			}
		}
	}
	return f
}

// only is the node that makes v, if that is the operation given and nobody takes
// its results but the node that asks, once; other results nobody takes at all.
func (f *fusions) only(v *graph.Value, op string) *graph.Node {
	n := v.Def
	if n.Op.Name != op || f.taken[n] || f.isOutput(v) || len(f.uses[v]) != 1 {
		return nil
	}
	for _, w := range n.Results {
		if w != v && len(f.uses[w]) > 0 {
			return nil
		}
	}
	return n
}

func (f *fusions) isOutput(v *graph.Value) bool {
	return slices.ContainsFunc(f.g.Outputs, func(o graph.Output) bool { return o.Value == v })
}

// legal: the fused operation takes operands that lie over the ranks as they do,
// and its results lie as those that they stand for.
func (f *fusions) legal(l *fusion) bool {
	op, _ := graph.Lookup(l.op)
	layouts := make([]graph.Layout, len(l.args))
	for i, v := range l.args {
		layouts[i] = v.Type.Layout
	}
	got, err := graph.LayoutsOf(&graph.Node{Op: op, Attrs: l.attrs, Args: l.args}, layouts, f.g.Ranks)
	return err == nil && slices.EqualFunc(got, l.results, func(a graph.Layout, v *graph.Value) bool { return a.Equal(v.Type.Layout) })
}

// addRMSNorm: the sum, mostly the residual stream, has other uses, which must
// come after the norm.
func (f *fusions) addRMSNorm(last *graph.Node) *fusion {
	sum := last.Args[0]
	if sum.Def.Op.Name != "add" || f.taken[sum.Def] {
		return nil
	}
	for _, n := range f.uses[sum] {
		if f.index[n] < f.index[last] {
			return nil
		}
	}
	return &fusion{"add_rmsnorm", last.Attrs, append(slices.Clone(sum.Def.Args), last.Args[1]), []*graph.Value{sum, last.Results[0]}, []*graph.Node{sum.Def}}
}

// convSilu: the state stays that of the convolution.
func (f *fusions) convSilu(last *graph.Node) *fusion {
	bias := f.only(last.Args[0], "bias")
	if bias == nil {
		return nil
	}
	conv := f.only(bias.Args[0], "conv1d")
	if conv == nil {
		return nil
	}
	x, w, state, seg := conv.Args[0], conv.Args[1], conv.Args[2], conv.Args[3]
	return &fusion{"conv1d_silu", nil, []*graph.Value{x, w, bias.Args[1], state, seg}, []*graph.Value{last.Results[0], conv.Results[1]}, []*graph.Node{conv, bias}}
}

func (f *fusions) biasSoftplus(last *graph.Node) *fusion {
	bias := f.only(last.Args[0], "bias")
	if bias == nil {
		return nil
	}
	return &fusion{"bias_softplus", nil, bias.Args, last.Results, []*graph.Node{bias}}
}

// siluMul: either factor may be the gate, as products commute to the last bit.
func (f *fusions) siluMul(last *graph.Node) *fusion {
	for i, v := range last.Args {
		if silu := f.only(v, "silu"); silu != nil {
			return &fusion{"silu_mul", nil, []*graph.Value{silu.Args[0], last.Args[1-i]}, last.Results, []*graph.Node{silu}}
		}
	}
	return nil
}

// addScaled: either summand may be scaled, as sums commute to the last bit.
func (f *fusions) addScaled(last *graph.Node) *fusion {
	for i, v := range last.Args {
		if scale := f.only(v, "scale"); scale != nil {
			return &fusion{"add_scaled", nil, []*graph.Value{last.Args[1-i], scale.Args[0], scale.Args[1]}, last.Results, []*graph.Node{scale}}
		}
	}
	return nil
}
