package passes

import (
	"maps"

	"github.com/krait-ml/krait/graph"
)

// peers marks each all_reduce that a device with peer memory does together with the add_rmsnorm
// behind it. Their kernel sums the payload and norms the rows in one launch. It never stores the
// sum, so nothing else may take that. The norm must come right behind: its other operand is then
// there before the collective begins, and no launch in between reads memory that its results take.
// The proof counts the pair as the one all_reduce that it is; a device without peer memory, or a
// payload above its limit, runs the two operations.
func peers(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.FusedStage, g.Ranks)
	for i, n := range g.Nodes {
		then := ""
		if next := behind(g, i); n.Op.Name == "all_reduce" && next != nil && next.Op.Name == "add_rmsnorm" && g.Sole(n) == next {
			then = next.Op.Name
		}
		if n.Attrs.Text("then") == then {
			if err := r.copy(n); err != nil {
				return nil, err
			}
			continue
		}
		attrs := maps.Clone(n.Attrs)
		attrs["then"] = then
		if _, err := r.node(n, n.Op.Name, attrs, names(n.Results), n.Results, r.args(n)...); err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// behind is the first node after node i that is a step of a schedule.
func behind(g *graph.Graph, i int) *graph.Node {
	for _, n := range g.Nodes[i+1:] {
		if n.Op.Class != graph.Leaf && n.Op.Class != graph.View {
			return n
		}
	}
	return nil
}
