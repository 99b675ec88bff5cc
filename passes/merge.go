package passes

import (
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// merge joins collectives of a block into as few launches as can be (fewest.go). The
// earlier one waits for the later, and with it what takes its results.
func merge(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.PartitionedStage, g.Ranks)
	for start := 0; start < len(g.Nodes); {
		end := endOfRun(g.Nodes, start)
		for _, l := range joinLaunches(g.Nodes[start:end]) {
			if err := r.launch(l); err != nil {
				return nil, err
			}
		}
		start = end
	}
	return r.finish()
}

// endOfRun is where the nodes end that compute in one block; leaves of any may be among them.
func endOfRun(nodes []*graph.Node, start int) int {
	var first *graph.Node
	for i, n := range nodes[start:] {
		switch {
		case n.Op.Class == graph.Leaf:
		case first == nil:
			first = n
		case n.Block() != first.Block():
			return start + i
		}
	}
	return len(nodes)
}

// launch is one node, or several that are joined to one.
type launch []*graph.Node

// joinLaunches puts the nodes of a block in an order in which launches that can be one are.
func joinLaunches(nodes []*graph.Node) []launch {
	var rest, out []launch
	number := fewest(nodes)
	for _, n := range nodes {
		rest = append(rest, launch{n})
	}
	for len(rest) > 0 {
		if joined, ok := joinFirst(rest, number); ok {
			rest = joined
			continue
		}
		out, rest = append(out, rest[0]), rest[1:]
	}
	return out
}

// joinFirst joins the first launch with the next that has its number. What needs its
// results comes after both then, all else before.
func joinFirst(list []launch, number map[*graph.Node]int) ([]launch, bool) {
	first, late := list[0], map[*graph.Value]bool{}
	if number[first[0]] == 0 {
		return nil, false
	}
	first.results(late)
	var before, after []launch
	for i, l := range list[1:] {
		switch {
		case l.needs(late):
			l.results(late)
			after = append(after, l)
		case number[l[0]] == number[first[0]]:
			both := slices.Concat(first, l)
			return slices.Concat(before, []launch{both}, after, list[i+2:]), true
		default:
			before = append(before, l)
		}
	}
	return nil, false
}

// results adds the results to a set.
func (l launch) results(to map[*graph.Value]bool) {
	for _, n := range l {
		for _, v := range n.Results {
			to[v] = true
		}
	}
}

// needs reports whether an operand is in the set.
func (l launch) needs(set map[*graph.Value]bool) bool {
	return slices.ContainsFunc(l, func(n *graph.Node) bool {
		return slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return set[v] })
	})
}

// launch writes one node, or several as one.
func (r *rewriter) launch(l launch) error {
	if len(l) == 1 {
		return r.copy(l[0])
	}
	var args, results []*graph.Value
	var notes []string
	for _, n := range l {
		args = append(args, r.args(n)...)
		results = append(results, n.Results...)
		if n.Note != "" {
			notes = append(notes, n.Note)
		}
	}
	m, err := r.node(l[0], l[0].Op.Name, l[0].Attrs, names(results), results, args...)
	if err == nil {
		m.Note = strings.Join(notes, "; ")
	}
	return err
}
