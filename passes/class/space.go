package class

import (
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Config is one way to compute a node: how its operands lie, and how its
// results do then, as numbers of layouts.
type Config struct{ In, Out []int }

// The layouts that every space has by these numbers.
const (
	Whole   = 0
	Partial = 1
)

// Space is everything that the rules and the class allow in a section.
type Space struct {
	*Section
	Layouts []graph.Layout
	Cuts    [][]int    // of each value: the split layouts that a collective or a relayout gives
	Configs [][]Config // of each node
	may     [][]int    // of each value: the layouts that it may have or get
}

// Explore finds the ways to compute every node of a section.
func Explore(s *Section) *Space {
	x := &Space{Section: s, Layouts: []graph.Layout{{}, {Kind: graph.Partial}}, may: make([][]int, len(s.Values))}
	for v := range s.Values {
		x.Cuts = append(x.Cuts, x.cutsOf(v))
	}
	for i, start := range s.Start {
		for _, l := range start {
			x.allow(i, x.Intern(l))
		}
	}
	for _, n := range s.Nodes {
		configs := x.ways(n)
		for _, c := range configs {
			for i, l := range c.Out {
				x.allow(s.ID[n.Results[i]], l)
			}
		}
		x.Configs = append(x.Configs, configs)
	}
	return x
}

// Intern is the number of a layout.
func (x *Space) Intern(l graph.Layout) int {
	i := slices.IndexFunc(x.Layouts, l.Equal)
	if i < 0 {
		i = len(x.Layouts)
		x.Layouts = append(x.Layouts, l)
	}
	return i
}

// May lists the layouts that a value may have, or get from a collective or a relayout.
func (x *Space) May(v int) []int { return x.may[v] }

// allow adds a layout that value v may have, and those that collectives and relayouts can make of
// it. Parameters and states stay where they are, but a term can be made of a whole one.
func (x *Space) allow(v, layout int) {
	if slices.Contains(x.may[v], layout) {
		return
	}
	x.may[v] = append(x.may[v], layout)
	if layout == Whole && IsTerm(x.Border, x.Values[v].Type) && x.has(v, Partial, true) {
		x.allow(v, Partial)
	}
	if !x.Stays(v) && x.has(v, Whole, true) {
		x.allow(v, Whole)
	}
	for _, l := range x.Cuts[v] {
		x.allow(v, l)
	}
}

// has reports whether a value may lie so, or a copy that is made of it.
func (x *Space) has(v, layout int, made bool) bool {
	limit, t := x.limits[v], x.Values[v].Type
	t.Layout = x.Layouts[layout]
	return slices.ContainsFunc(limit.Layouts, t.Layout.Equal) || made && slices.ContainsFunc(x.Needed[v], t.Layout.Equal) ||
		!limit.Only && Lies(x.Border, t, made)
}

// cutsOf lists the split layouts that collectives and relayouts can give a value.
func (x *Space) cutsOf(v int) []int {
	if x.Stays(v) {
		return nil
	}
	var cuts []graph.Layout
	if l := AtBorder(x.Border, x.Values[v].Type); l.Kind == graph.Sharded {
		cuts = append(cuts, l)
	}
	for _, l := range x.limits[v].Layouts {
		if l.ByBatch() && !slices.ContainsFunc(cuts, l.Equal) {
			cuts = append(cuts, l)
		}
	}
	for axis, d := range x.Values[v].Type.Dims {
		if d.Times > 0 {
			cuts = append(cuts, graph.SplitRows(graph.Even))
		}
		if d.Sym == 0 && x.Border != graph.InParts {
			cuts = append(cuts, graph.SplitOn(axis, len(d.Fields)))
		}
	}
	var out []int
	for _, cut := range cuts {
		if l := x.Intern(cut); x.has(v, l, true) {
			out = append(out, l)
		}
	}
	return out
}

// ways lists how a node can be computed: every combination of its operands'
// layouts that its rule accepts and of which the class has the results.
func (x *Space) ways(n *graph.Node) []Config {
	var out []Config
	layouts := graph.LayoutsFor(n)
	if x.Across {
		layouts = graph.LayoutsAlong(n)
	}
	in := make([]int, len(n.Args))
	var rest func(i int)
	rest = func(i int) {
		if i == len(in) {
			if results := x.derive(n, layouts, in); results != nil {
				out = append(out, Config{slices.Clone(in), results})
			}
			return
		}
		for _, l := range x.may[x.ID[n.Args[i]]] {
			in[i] = l
			rest(i + 1)
		}
	}
	rest(0)
	return out
}

// derive asks the rule; nil means that it or the class refuses.
func (x *Space) derive(n *graph.Node, layouts func([]graph.Layout, int) ([]graph.Layout, error), in []int) []int {
	operands := make([]graph.Layout, len(in))
	for i, l := range in {
		operands[i] = x.Layouts[l]
	}
	results, err := layouts(operands, x.Ranks)
	if err != nil {
		return nil
	}
	out := make([]int, len(results))
	for i, l := range results {
		out[i] = x.Intern(l)
		old := slices.IndexFunc(n.Op.States, func(p graph.StatePair) bool { return p.Result == i })
		if old >= 0 && out[i] == in[n.Op.States[old].Operand] {
			continue // a state stays where it was placed
		}
		if old >= 0 || !Spread(x.Border, n, n.Results[i], l) || !x.has(x.ID[n.Results[i]], out[i], OfNothing(n)) {
			return nil
		}
	}
	return out
}
