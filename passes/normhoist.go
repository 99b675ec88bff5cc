package passes

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// normHoist moves the per-token factor of a norm over an axis of units past the matmul that
// contracts this axis: W (w · g / rms) = (W (w · g)) / rms. The sum of squares then does not have
// to be whole before the matmul, and can travel in the same all_reduce as the matmul's result. The
// factor has no letter that the matmul contracts, since there is one statistic per token; the
// norm's weight stays with the activation, and what is added to the result (a bias) comes after the
// factor. A norm over an axis without units needs no reduction, and is left as it is; so is one of
// several groups of channels, since the matmul sums over groups whose factors differ.
func normHoist(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.UnpackedStage, g.Ranks)
	uses := usesOf(g)
	hoisted := map[*graph.Value]*graph.Node{} // results of rms_scale: the node
	for _, n := range g.Nodes {
		var err error
		switch {
		case canHoist(g, n, uses):
			hoisted[n.Results[0]] = n
			args := r.args(n)
			_, err = r.node(n, "scale", nil, []string{n.Name() + "_weighted"}, n.Results, args[0], args[2])
		case n.Op.Name == "matmul" && hoisted[n.Args[0]] != nil:
			err = r.divideAfter(n, hoisted[n.Args[0]])
		default:
			if err = r.copy(n); n.Op.Name == "group_rms_scale" && err == nil {
				groups := n.Args[0].Type.Dims[1].Len() / n.Attrs.Int("width")
				r.to[n.Results[0]].Def.Note = fmt.Sprintf("not hoisted: it has %d factors per token, one per group, and a matmul sums over groups", groups)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// canHoist: the scaled value goes into matmuls only, as what they contract.
func canHoist(g *graph.Graph, n *graph.Node, uses map[*graph.Value][]*graph.Node) bool {
	if n.Op.Name != "rms_scale" || !hasUnits(n.Args[0].Type.Dims[1]) || len(uses[n.Results[0]]) == 0 {
		return false
	}
	if slices.ContainsFunc(g.Outputs, func(o graph.Output) bool { return o.Value == n.Results[0] }) {
		return false
	}
	return !slices.ContainsFunc(uses[n.Results[0]], func(m *graph.Node) bool { return m.Op.Name != "matmul" })
}

// divideAfter writes the matmul, and the factor of norm on its result.
func (r *rewriter) divideAfter(n, norm *graph.Node) error {
	m, err := r.node(n, "matmul", nil, []string{n.Name() + "_raw"}, nil, r.args(n)...)
	if err != nil {
		return err
	}
	rows, err := r.node(n, "rms_rows", norm.Attrs, names(n.Results), n.Results, m.Results[0], r.to[norm.Args[1]])
	if err == nil {
		rows.Note = "hoisted: the factor of the norm is one per token and has no letter that the matmul contracts, so its sum can travel with the result"
	}
	return err
}
