package passes

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// merge joins all_reduces of a block that do not need each other's results into
// one launch. The earlier one waits for the later, and with it what takes its
// results.
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

// endOfRun is where the nodes end that compute in one block; leaves of any may be
// among them.
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

// launch is one node, or several all_reduces that are one.
type launch []*graph.Node

// joinLaunches puts the nodes of a block in an order in which launches that can
// be one are.
func joinLaunches(nodes []*graph.Node) []launch {
	list := make([]launch, len(nodes))
	for i, n := range nodes {
		list[i] = launch{n}
	}
	for i := 0; i < len(list); i++ {
		if !list[i][0].Op.Variadic {
			continue
		}
		if j, waiting := laterReduce(list, i); j > 0 {
			joined := append(slices.Clone(list[i]), list[j]...)
			var next []launch
			for k, l := range list[i+1 : j+1] {
				if k+i+1 == j {
					next = append(next, joined)
				} else if !waiting[k+i+1] {
					next = append(next, l)
				}
			}
			for k, l := range list[i+1 : j] {
				if waiting[k+i+1] {
					next = append(next, l)
				}
			}
			list = slices.Replace(list, i, j+1, next...)
			i-- // another node is here now
		}
	}
	return list
}

// laterReduce finds the next all_reduce with the same attributes that does not
// need the results of launch i, and which launches before it do.
func laterReduce(list []launch, i int) (j int, waiting map[int]bool) {
	waits := map[*graph.Value]bool{}
	need := func(l launch) bool {
		return slices.ContainsFunc(l, func(n *graph.Node) bool {
			return slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return waits[v] })
		})
	}
	add := func(l launch) {
		for _, n := range l {
			for _, v := range n.Results {
				waits[v] = true
			}
		}
	}
	add(list[i])
	waiting = map[int]bool{}
	for j := i + 1; j < len(list); j++ {
		n := list[j][0]
		switch {
		case need(list[j]):
			waiting[j] = true
			add(list[j])
		case n.Op == list[i][0].Op && n.Attrs.Text("acc") == list[i][0].Attrs.Text("acc"):
			return j, waiting
		}
	}
	return 0, nil
}

// launch writes one node, or several all_reduces as one.
func (r *rewriter) launch(list launch) error {
	if len(list) == 1 {
		return r.copy(list[0])
	}
	var args, results []*graph.Value
	note := ""
	for i, n := range list {
		args = append(args, r.args(n)...)
		results = append(results, n.Results...)
		if note += n.Note; i+1 < len(list) && n.Note != "" {
			note += "; "
		}
	}
	m, err := r.node(list[len(list)-1], list[0].Op.Name, list[0].Attrs, names(results), results, args...)
	if err == nil {
		m.Note = note
	}
	return err
}
