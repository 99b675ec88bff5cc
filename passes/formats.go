package passes

import (
	"errors"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Target answers for the device that will run the graph.
type Target interface {
	// Pieces reports whether its kernels take activations in pieces, rather than in bf16.
	Pieces() bool
	// Accepts reports, of a node's operands and then of its results, which its kernels take so on
	// every rank, where those lie so that narrow says: some are so together or not at all, and of
	// fewer no more are accepted. The batch has more than [graph.PiecesRows] rows of every size.
	// Prompts says that sequences have several tokens; otherwise each has one.
	Accepts(n *graph.Node, ranks int, narrow func(*graph.Value) bool, prompts bool) []bool
}

// formats decides which activations lie in bf16 between kernels, or in pieces: all those that
// every kernel which writes or reads them takes so. It begins with all, and takes back what is
// refused until nothing is, once for batches with prompts and once for those in which each
// sequence has one token. Collectives, relayouts and outputs have f32. Batches with few rows have
// f32 throughout: the plan has room for it.
func formats(g *graph.Graph, o *Options) (*graph.Graph, error) {
	if o.Target == nil {
		return nil, errors.New("no device is given that says which activations its kernels take in bf16 or in pieces")
	}
	inPrompts, always := graph.NarrowPrompts, graph.NarrowAlways
	if o.Target.Pieces() {
		inPrompts, always = graph.PiecesPrompts, graph.PiecesAlways
	}
	prompts, steps := narrowed(g, o.Target, true), narrowed(g, o.Target, false)
	r := rewrite(g, graph.FusedStage, g.Ranks)
	for _, n := range g.Nodes {
		if err := r.copy(n); err != nil {
			return nil, err
		}
		for _, v := range n.Results {
			switch to := r.to[v]; {
			case !prompts[v]:
				to.Narrow = graph.NarrowNever
			case steps[v]:
				to.Narrow = always
			default:
				to.Narrow = inPrompts
			}
		}
	}
	return r.finish()
}

// narrowed is the largest set of values that all nodes accept in bf16, or in pieces.
func narrowed(g *graph.Graph, target Target, prompts bool) map[*graph.Value]bool {
	in := map[*graph.Value]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.Results {
			in[v] = v.Type.DType == graph.F32 && (n.Op.Class == graph.Compute || n.Op.Class == graph.View && in[n.Args[0]]) && !isState(n, v)
		}
	}
	for _, o := range g.Outputs {
		in[o.Value] = false
	}
	for again := true; again; {
		again = false
		refuse := func(v *graph.Value) { again, in[v] = again || in[v], false }
		for _, n := range slices.Backward(g.Nodes) {
			values := slices.Concat(n.Args, n.Results)
			var accepted []bool
			switch n.Op.Class {
			case graph.Leaf:
				continue
			case graph.View: // one memory, and a part of a row of pieces is none
				if !in[n.Args[0]] || !in[n.Results[0]] || target.Pieces() {
					refuse(n.Args[0])
					refuse(n.Results[0])
				}
				continue
			case graph.Compute:
				if !slices.ContainsFunc(values, func(v *graph.Value) bool { return in[v] }) {
					continue
				}
				accepted = target.Accepts(n, g.Ranks, func(v *graph.Value) bool { return in[v] }, prompts)
			}
			for i, v := range values {
				if accepted == nil || !accepted[i] {
					refuse(v)
				}
			}
		}
	}
	return in
}

// isState reports whether a result of a node is the new state, which lies where the old one does.
func isState(n *graph.Node, v *graph.Value) bool {
	return slices.ContainsFunc(n.Op.States, func(p graph.StatePair) bool { return n.Results[p.Result] == v })
}
