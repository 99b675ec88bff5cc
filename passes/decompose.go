package passes

import "github.com/krait-ml/krait/graph"

// decompose cuts an rmsnorm over an axis of units in two, a sum of squares and a
// scale, so that the axis can be split: the sum over ranks goes between. A norm
// over an axis without units is left as it is.
func decompose(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.UnpackedStage, g.Ranks)
	for _, n := range g.Nodes {
		if n.Op.Name != "rmsnorm" || !hasUnits(n.Args[0].Type.Dims[1]) {
			if err := r.copy(n); err != nil {
				return nil, err
			}
			continue
		}
		args := r.args(n)
		sum, err := r.node(n, "sumsq", nil, []string{n.Name() + "_sumsq"}, nil, args[0])
		if err != nil {
			return nil, err
		}
		attrs := graph.Attrs{"eps": n.Attrs.Float("eps"), "width": n.Args[0].Type.Dims[1].Len()}
		if _, err := r.node(n, "rms_scale", attrs, names(n.Results), n.Results, args[0], sum.Results[0], args[1]); err != nil {
			return nil, err
		}
	}
	return r.finish()
}
