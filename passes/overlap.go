package passes

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// overlap orders the nodes of each block so that what does not need the result of a collective runs
// while it travels: what leads to a collective comes before it and nothing else does, and after it
// what is independent of it comes first. The compute stream has the same work, and no collective
// begins later than before: where ranks are alike no step takes longer, whatever things cost. The
// price is memory, since what is put off keeps its operands alive.
func overlap(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.FusedStage, g.Ranks)
	for from := 0; from < len(g.Nodes); {
		to := from + 1
		for to < len(g.Nodes) && g.Nodes[to].Block() == g.Nodes[from].Block() {
			to++
		}
		for _, n := range inOverlap(g.Nodes[from:to]) {
			if err := r.copy(n); err != nil {
				return nil, err
			}
		}
		from = to
	}
	return r.finish()
}

// inOverlap is the new order of the nodes of a block.
func inOverlap(nodes []*graph.Node) []*graph.Node {
	o := &overlapper{done: map[*graph.Node]bool{}}
	rest := nodes
	for _, c := range nodes {
		if c.Op.Class != graph.Collective {
			continue
		}
		need := ancestors(nodes, c)
		var now []*graph.Node
		for _, n := range rest {
			if n == c || need[n] || o.putOff[n] {
				now = append(now, n)
			}
		}
		o.emit(now)
		rest = slices.DeleteFunc(slices.Clone(rest), func(n *graph.Node) bool { return o.done[n] })
		o.travels(c, rest)
	}
	o.emit(rest)
	return o.order
}

// overlapper emits nodes around the collective that travels.
type overlapper struct {
	order  []*graph.Node
	done   map[*graph.Node]bool
	putOff map[*graph.Node]bool // what was before the last collective, and is not done
	waits  map[*graph.Node]bool // what needs its result
}

// emit puts first what need not wait.
func (o *overlapper) emit(nodes []*graph.Node) {
	for _, waiting := range []bool{false, true} {
		for _, n := range nodes {
			if o.waits[n] == waiting {
				o.order, o.done[n] = append(o.order, n), true
			}
		}
	}
}

// travels notes what of the rest, which is in its old order, does not need a collective.
func (o *overlapper) travels(c *graph.Node, rest []*graph.Node) {
	o.putOff, o.waits = map[*graph.Node]bool{}, map[*graph.Node]bool{}
	for _, n := range rest {
		o.waits[n] = slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return v.Def == c || o.waits[v.Def] })
		o.putOff[n] = n.Results[0].ID < c.Results[0].ID
	}
}

// ancestors are the nodes, of some in their order, that a node needs.
func ancestors(nodes []*graph.Node, c *graph.Node) map[*graph.Node]bool {
	need := map[*graph.Node]bool{c: true}
	for _, n := range slices.Backward(nodes) {
		if need[n] {
			for _, v := range n.Args {
				need[v.Def] = true
			}
		}
	}
	return need
}
