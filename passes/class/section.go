package class

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// Section is a run of nodes of one block, or of none: what a search looks at by
// itself, because values cross its border in one way. Leaves come with their users.
type Section struct {
	Block  string
	Ranks  int
	Across bool // ranks are along TP, and values lie along CP already
	Border graph.PlaceKind
	Nodes  []*graph.Node // those that compute, in an order that keeps few values in use
	Values []*graph.Value
	ID     map[*graph.Value]int
	Last   []int            // of each value: the node that uses it last, -1 where none does
	Needed [][]graph.Layout // of each value: in which layouts it leaves the section, or is an output
	// Start lists the layouts that a value may have before its first use: the
	// placements of a parameter or a state, one for what comes from outside.
	Start [][]graph.Layout

	Written []*graph.Node // as they stand in the graph, with their leaves

	limits []Limit
}

// Limit narrows what the class says of a value, or widens it. The zero value is the class.
type Limit struct {
	Layouts []graph.Layout // that it may have
	Only    bool           // and no others, but those in which it leaves its section
}

// Options of [Sections].
type Options struct {
	Ranks  int
	Across bool                          // the ranks are along TP, and values lie along CP already
	Border graph.PlaceKind               // how tokens lie in what crosses borders: Whole, Even or BySequence
	Limit  func(*graph.Value) Limit      // nil: the class as it is
	Placed map[*graph.Value]graph.Layout // leaves whose layout was decided elsewhere
}

// Sections takes a graph apart, in order.
func Sections(g *graph.Graph, o Options) []*Section {
	var out []*Section
	var at *Section
	in := map[*graph.Value]*Section{} // where a value is made
	whole := map[*graph.Value]bool{}  // leaves that are outputs
	leaves := map[string][]*graph.Node{}
	for _, n := range g.Nodes {
		block := n.Block()
		if n.Op.Class == graph.Leaf {
			leaves[block] = append(leaves[block], n)
			continue
		}
		if at == nil || at.Block != block {
			at = &Section{Block: block, Ranks: o.Ranks, Across: o.Across, Border: o.Border, ID: map[*graph.Value]int{}}
			out = append(out, at)
		}
		at.Written = append(append(at.Written, leaves[block]...), n)
		leaves[block] = nil
		at.Nodes = append(at.Nodes, n)
		for _, v := range n.Args {
			at.value(v)
			if from := in[v]; from != nil && from != at {
				from.leaves(v, AtBorder(o.Border, v.Type))
			}
		}
		for _, v := range n.Results {
			at.value(v)
			in[v] = at
		}
	}
	for _, output := range g.Outputs {
		if s := in[output.Value]; s != nil {
			s.leaves(output.Value, graph.Layout{})
		} else if isPlaced(output.Value) {
			whole[output.Value] = true
		}
	}
	for _, s := range out {
		s.narrow()
		s.begin(o, in, whole)
	}
	return out
}

// value numbers a value.
func (s *Section) value(v *graph.Value) {
	if _, ok := s.ID[v]; !ok {
		s.ID[v] = len(s.Values)
		s.Values = append(s.Values, v)
		s.Needed = append(s.Needed, nil)
		s.Last = append(s.Last, -1)
	}
}

// leaves notes that a value is needed outside, in a layout.
func (s *Section) leaves(v *graph.Value, as graph.Layout) {
	if i := s.ID[v]; !slices.ContainsFunc(s.Needed[i], as.Equal) {
		s.Needed[i] = append(s.Needed[i], as)
	}
}

// begin says how values lie before their first use, and when they are used last.
func (s *Section) begin(o Options, in map[*graph.Value]*Section, whole map[*graph.Value]bool) {
	for i, n := range s.Nodes {
		for _, v := range n.Args {
			s.Last[s.ID[v]] = i
		}
	}
	shares := Sharing(s.Nodes)
	s.Start = make([][]graph.Layout, len(s.Values))
	s.limits = make([]Limit, len(s.Values))
	for i, v := range s.Values {
		if o.Limit != nil {
			s.limits[i] = o.Limit(v)
		}
		l, fixed := o.Placed[v]
		switch {
		case fixed:
			s.Start[i] = []graph.Layout{l}
		case s.Stays(i) && !whole[v]:
			s.Start[i] = s.limits[i].placements(o.Border, v.Type, shares)
		case in[v] == nil || whole[v]: // an input
			s.Start[i] = []graph.Layout{{}}
		case in[v] != s:
			s.Start[i] = []graph.Layout{AtBorder(o.Border, v.Type)}
		}
	}
}

// Placed is the section with the layouts of some leaves decided elsewhere, and those of its own;
// as [Sections] gives it with Options.Placed. It shares all else with s.
func (s *Section) Placed(leaves map[*graph.Value]graph.Layout) *Section {
	out := *s
	out.Start = slices.Clone(s.Start)
	for v, l := range leaves {
		if i, ok := s.ID[v]; ok {
			out.Start[i] = []graph.Layout{l}
		}
	}
	return &out
}

// placements lists where a parameter or a state may lie.
func (l Limit) placements(border graph.PlaceKind, t graph.Type, shares []Share) []graph.Layout {
	if l.Only {
		return l.Layouts
	}
	out := Placements(border, t, shares)
	for _, more := range l.Layouts {
		if !slices.ContainsFunc(out, more.Equal) {
			out = append(out, more)
		}
	}
	return out
}

// Stays reports whether a value keeps its one placement: parameters and states.
func (s *Section) Stays(v int) bool { return isPlaced(s.Values[v]) }

func isPlaced(v *graph.Value) bool {
	return v.Def.Op.Name == "param" || v.Def.Op.Name == "state"
}

// Key is equal for sections whose searches give the same. Values from outside
// are told apart by their types.
func (s *Section) Key() string {
	var b strings.Builder
	b.WriteString(graph.BlockKey(&graph.Graph{Nodes: s.Written}, s.Block))
	for i, v := range s.Values {
		fmt.Fprintf(&b, "%d %d %v", len(s.Needed[i]), len(s.Start[i]), s.limits[i].Only)
		for _, l := range slices.Concat(s.Needed[i], s.Start[i], s.limits[i].Layouts) {
			t := v.Type
			t.Layout = l
			b.WriteString(" " + t.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ahead is how many nodes are looked at to find the next.
const ahead = 64

// narrow puts the nodes in an order in which few values are in use at a time, since searches
// remember how each of them is held: next comes the node after which fewest are.
func (s *Section) narrow() {
	o := &order{Section: s, uses: make([]int, len(s.Values)), made: make([]bool, len(s.Values))}
	for i := range o.made {
		o.made[i] = true
	}
	for _, n := range s.Nodes {
		for _, v := range n.Args {
			o.uses[s.ID[v]]++
		}
		for _, v := range n.Results {
			o.made[s.ID[v]] = false
		}
	}
	nodes := slices.Clone(s.Nodes)
	for i := range s.Nodes {
		best, least := 0, o.grows(nodes[0]) // whose operands are there
		for j, n := range nodes[:min(len(nodes), ahead)] {
			if g := o.grows(n); g < least && o.ready(n) {
				best, least = j, g
			}
		}
		s.Nodes[i] = nodes[best]
		o.take(nodes[best])
		nodes = slices.Delete(nodes, best, best+1)
	}
}

// order is what is known on the way: uses that are to come, and what is made.
type order struct {
	*Section
	uses []int
	made []bool
}

func (o *order) ready(n *graph.Node) bool {
	return !slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return !o.made[o.ID[v]] })
}

// grows is how many more values are in use after a node.
func (o *order) grows(n *graph.Node) int {
	more := 0
	for _, v := range n.Results {
		if o.uses[o.ID[v]] > 0 {
			more++
		}
	}
	for i, v := range n.Args {
		here := 0
		for _, w := range n.Args {
			if w == v {
				here++
			}
		}
		if o.uses[o.ID[v]] == here && !slices.Contains(n.Args[:i], v) {
			more--
		}
	}
	return more
}

func (o *order) take(n *graph.Node) {
	for _, v := range n.Args {
		o.uses[o.ID[v]]--
	}
	for _, v := range n.Results {
		o.made[o.ID[v]] = true
	}
}
