package passes

import (
	"errors"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// dce removes dead nodes: those of whose results none is an output, none
// replaces a state and none is an operand of a node that stays, and the parameters
// that only they took. Inputs stay, since callers give them with every batch.
func dce(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	if len(g.Outputs) == 0 {
		return nil, errors.New("the graph has no output; add a line such as output y = %y")
	}
	return withoutDead(g)
}

// withoutDead is the graph without what its outputs and states do not need.
func withoutDead(g *graph.Graph) (*graph.Graph, error) {
	needed := map[*graph.Value]bool{}
	for _, o := range g.Outputs {
		needed[o.Value] = true
	}
	stays := func(n *graph.Node) bool {
		return n.Op.Name == "input" || len(n.Op.States) > 0 ||
			slices.ContainsFunc(n.Results, func(v *graph.Value) bool { return needed[v] })
	}
	for _, n := range slices.Backward(g.Nodes) {
		if stays(n) {
			for _, v := range n.Args {
				needed[v] = true
			}
		}
	}
	r := rewrite(g, g.Stage, g.Ranks)
	for _, n := range g.Nodes {
		if !stays(n) {
			continue
		}
		if err := r.copy(n); err != nil {
			return nil, err
		}
	}
	return r.finish()
}
