package passes

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// merge joins all_reduces of a block that do not wait for each other into one
// launch: the earlier one moves to the later, where nothing in between takes its
// results.
func merge(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.PartitionedStage, g.Ranks)
	into := map[*graph.Node][]*graph.Node{} // by the last: those that join it
	moved := map[*graph.Node]bool{}
	for i, n := range g.Nodes {
		if n.Op.Name != "all_reduce" {
			continue
		}
		if to := laterReduce(g.Nodes[i+1:], n); to != nil {
			into[to] = append(append(into[to], into[n]...), n)
			delete(into, n)
			moved[n] = true
		}
	}
	for _, n := range g.Nodes {
		var err error
		switch {
		case moved[n]:
		case into[n] != nil:
			err = r.joined(append(into[n], n))
		default:
			err = r.copy(n)
		}
		if err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// laterReduce finds the next all_reduce of the block with the same attributes
// that n can join.
func laterReduce(rest []*graph.Node, n *graph.Node) *graph.Node {
	for _, m := range rest {
		if m.Block() != n.Block() || slices.ContainsFunc(m.Args, func(v *graph.Value) bool { return v.Def == n }) {
			return nil
		}
		if m.Op.Name == "all_reduce" && m.Attrs.Text("acc") == n.Attrs.Text("acc") {
			return m
		}
	}
	return nil
}

// joined writes several all_reduces as one.
func (r *rewriter) joined(list []*graph.Node) error {
	var args, results []*graph.Value
	note := ""
	for i, n := range list {
		args = append(args, r.args(n)...)
		results = append(results, n.Results...)
		if note += n.Note; i+1 < len(list) && n.Note != "" {
			note += "; "
		}
	}
	m, err := r.node(list[len(list)-1], "all_reduce", list[0].Attrs, names(results), results, args...)
	if err == nil {
		m.Note = note
	}
	return err
}
