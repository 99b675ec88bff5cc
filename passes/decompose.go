package passes

import "github.com/krait-ml/krait/graph"

// decompose cuts a norm over an axis of units in two, a sum of squares and a scale, so that the
// axis can be split: the sum over ranks goes between, where a rank does not have all that is normed
// together. A norm over an axis without units is left as it is.
func decompose(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.UnpackedStage, g.Ranks)
	for _, n := range g.Nodes {
		err := error(nil)
		switch {
		case n.Op.Name == "rmsnorm" && hasUnits(n.Args[0].Type.Dims[1]):
			err = r.inTwo(n, "sumsq", nil, "rms_scale", n.Args[0].Type.Dims[1].Len())
		case n.Op.Name == "group_rmsnorm" && hasUnits(n.Args[0].Type.Dims[1]):
			groups := n.Attrs.Int("groups")
			err = r.inTwo(n, "group_sumsq", graph.Attrs{"groups": groups}, "group_rms_scale", n.Args[0].Type.Dims[1].Len()/groups)
		default:
			err = r.copy(n)
		}
		if err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// inTwo writes norm n, of width channels, as a sum and a scale.
func (r *rewriter) inTwo(n *graph.Node, sumOp string, a graph.Attrs, scaleOp string, width int) error {
	args := r.args(n)
	sum, err := r.node(n, sumOp, a, []string{n.Name() + "_sumsq"}, nil, args[0])
	if err != nil {
		return err
	}
	attrs := graph.Attrs{"eps": n.Attrs.Float("eps"), "width": width}
	_, err = r.node(n, scaleOp, attrs, names(n.Results), n.Results, args[0], sum.Results[0], args[1])
	return err
}
