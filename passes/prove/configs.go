package prove

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// config is one way to compute a node: how its operands lie, and how its
// results do then, as numbers of interned layouts.
type config struct{ in, out []int }

// The layouts that every search knows by number.
const (
	whole   = 0
	partial = 1
)

// space is everything that the rules and the class allow in a section.
type space struct {
	*section
	layouts []graph.Layout
	may     [][]int    // of each value: the layouts that it may have or get
	cuts    [][]int    // of each value: those that shard and reduce_scatter give
	ring    []int64    // of each value: what passing it on once sends, times the ranks
	configs [][]config // of each node

	limit int  // collectives that a search may use
	over  bool // it would have liked more
}

func explore(s *section) *space {
	x := &space{section: s, layouts: []graph.Layout{{}, {Kind: graph.Partial}}, may: make([][]int, len(s.values))}
	for v := range s.values {
		x.cuts = append(x.cuts, x.cutsOf(v))
		x.ring = append(x.ring, sent("all_gather", s.values[v].Type, s.ranks).parts())
	}
	for i, start := range s.start {
		for _, l := range start {
			x.allow(i, x.intern(l))
		}
	}
	for _, n := range s.nodes {
		configs := x.ways(n)
		for _, c := range configs {
			for i, l := range c.out {
				x.allow(s.id[n.Results[i]], l)
			}
		}
		x.configs = append(x.configs, configs)
	}
	return x
}

func (x *space) intern(l graph.Layout) int {
	i := slices.IndexFunc(x.layouts, l.Equal)
	if i < 0 {
		i = len(x.layouts)
		x.layouts = append(x.layouts, l)
	}
	return i
}

// allow adds a layout that value v may have, and those that collectives and
// relayouts can make of it.
func (x *space) allow(v, layout int) {
	if slices.Contains(x.may[v], layout) {
		return
	}
	x.may[v] = append(x.may[v], layout)
	if layout == whole && x.values[v].Type.DType.Float() {
		x.allow(v, partial)
	}
	if !x.stays(v) {
		x.allow(v, whole)
	}
	for _, l := range x.cuts[v] {
		x.allow(v, l)
	}
}

// cutsOf lists the layouts that shard and reduce_scatter can give a value, if
// the class has them. Parameters and states stay where they are.
func (x *space) cutsOf(v int) []int {
	var out []int
	t := x.values[v].Type
	for axis, d := range t.Dims {
		t.Layout = graph.SplitOn(axis, len(d.Fields))
		if hasUnits(d) && owned(t, true) && !x.stays(v) {
			out = append(out, x.intern(t.Layout))
		}
	}
	return out
}

// ways lists how a node can be computed: every combination of its operands'
// layouts that its rule accepts and of which the class has the results.
func (x *space) ways(n *graph.Node) []config {
	var out []config
	in := make([]int, len(n.Args))
	var rest func(i int)
	rest = func(i int) {
		if i == len(in) {
			if results := x.derive(n, in); results != nil {
				out = append(out, config{slices.Clone(in), results})
			}
			return
		}
		for _, l := range x.may[x.id[n.Args[i]]] {
			in[i] = l
			rest(i + 1)
		}
	}
	if n.Op == elsewhere {
		return []config{{make([]int, len(in)), []int{whole}}}
	}
	rest(0)
	return out
}

// derive asks the rule; nil means that it or the class refuses.
func (x *space) derive(n *graph.Node, in []int) []int {
	operands := make([]graph.Layout, len(in))
	for i, l := range in {
		operands[i] = x.layouts[l]
	}
	results, err := graph.LayoutsOf(n, operands, x.ranks)
	if err != nil {
		return nil
	}
	out := make([]int, len(results))
	for i, l := range results {
		t := n.Results[i].Type
		if t.Layout = l; !owned(t, false) {
			return nil
		}
		out[i] = x.intern(l)
	}
	for _, p := range n.Op.States {
		if out[p.Result] != in[p.Operand] {
			return nil
		}
	}
	return out
}
