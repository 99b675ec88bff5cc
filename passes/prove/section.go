package prove

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// section is a block of a graph, or all that is outside of blocks: what the
// search looks at by itself, because values cross its border whole.
type section struct {
	block  string
	ranks  int
	all    []*graph.Node
	values []*graph.Value
	id     map[*graph.Value]int
	nodes  []*graph.Node                 // those that compute
	placed map[*graph.Value]graph.Layout // parameters that several sections use
	last   []int                         // the node that uses a value last, len(nodes) for outputs
	// start lists the layouts that a value may have before its first use: the
	// placements of a parameter or a state, whole for what comes from outside.
	start [][]graph.Layout
}

// sections takes a graph apart; what is outside of blocks comes last.
func sections(g *graph.Graph, ranks int, placed map[*graph.Value]graph.Layout) []*section {
	byBlock := map[string]*section{}
	var out []*section
	for _, b := range append(g.Blocks(), "") {
		s := &section{block: b, ranks: ranks, id: map[*graph.Value]int{}, placed: placed}
		byBlock[b] = s
		out = append(out, s)
	}
	for _, n := range g.Nodes {
		s := byBlock[n.Block()]
		s.all = append(s.all, n)
		s.reenter(n)
		s.add(n)
	}
	for _, o := range g.Outputs {
		s := byBlock[o.Value.Def.Block()]
		s.last[s.value(o.Value)] = len(s.nodes)
	}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			if b := v.Def.Block(); b != n.Block() && v.Def.Op.Class != graph.Leaf {
				s := byBlock[b]
				s.last[s.id[v]] = len(s.nodes)
			}
		}
	}
	for _, s := range out {
		s.begin()
	}
	return out
}

// value is the number of a value in the section.
func (s *section) value(v *graph.Value) int {
	i, ok := s.id[v]
	if !ok {
		i = len(s.values)
		s.id[v] = i
		s.values = append(s.values, v)
		s.last = append(s.last, -1)
	}
	return i
}

func (s *section) add(n *graph.Node) {
	if n.Op.Class == graph.Leaf {
		return // leaves come with their users
	}
	for _, v := range n.Args {
		s.last[s.value(v)] = len(s.nodes)
	}
	for _, v := range n.Results {
		s.value(v)
	}
	s.nodes = append(s.nodes, n)
}

// elsewhere stands for other sections: what comes back from there was made of
// values of this section, which left it whole.
var elsewhere = &graph.Op{Name: "elsewhere", Class: graph.Compute}

// reenter adds a node for every operand that comes back from other sections.
func (s *section) reenter(n *graph.Node) {
	if len(s.nodes) == 0 {
		return
	}
	for _, v := range n.Args {
		if _, known := s.id[v]; known || v.Def.Block() == s.block || v.Def.Op.Class == graph.Leaf {
			continue
		}
		if from := s.sources(v); len(from) > 0 {
			s.add(&graph.Node{Op: elsewhere, Args: from, Results: []*graph.Value{v}})
		}
	}
}

// sources lists the values of the section that a value from elsewhere is made
// of, in order.
func (s *section) sources(v *graph.Value) []*graph.Value {
	var out []*graph.Value
	seen := map[*graph.Value]bool{}
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		switch {
		case seen[v] || v.Def.Op.Class == graph.Leaf:
		case v.Def.Block() == s.block:
			out = append(out, v)
		default:
			for _, a := range v.Def.Args {
				visit(a)
			}
		}
		seen[v] = true
	}
	visit(v)
	return out
}

// begin says how values lie before their first use.
func (s *section) begin() {
	shares := sharing(s.nodes)
	s.start = make([][]graph.Layout, len(s.values))
	for i, v := range s.values {
		l, fixed := s.placed[v]
		switch leaf := v.Def.Op.Name; {
		case fixed:
			s.start[i] = []graph.Layout{l}
		case leaf == "param" || leaf == "state":
			s.start[i] = placements(v.Type, shares)
		case leaf == "input" || v.Def.Block() != s.block && !s.returns(v):
			s.start[i] = []graph.Layout{{}}
		}
	}
}

// returns reports whether a value comes back from elsewhere.
func (s *section) returns(v *graph.Value) bool {
	return slices.ContainsFunc(s.nodes, func(n *graph.Node) bool { return n.Op == elsewhere && n.Results[0] == v })
}

// stays reports whether a value keeps its one placement: parameters and states.
func (s *section) stays(v int) bool {
	op := s.values[v].Def.Op.Name
	return op == "param" || op == "state"
}

// key is equal for sections that have the same minimum. Values from outside are
// told apart by their types, outputs by their place.
func (s *section) key() string {
	text := graph.BlockKey(&graph.Graph{Nodes: s.all}, s.block)
	for i, v := range s.values {
		text += layoutText(v.Type, s.start[i]) + "\n"
		if s.last[i] == len(s.nodes) {
			text += "output " + v.Name[len(s.block):] + "\n"
		}
	}
	for i, n := range s.nodes {
		if n.Op == elsewhere {
			text += fmt.Sprint("elsewhere ", i, len(n.Args), "\n")
			for _, v := range n.Args {
				text += fmt.Sprint(s.id[v], "\n")
			}
		}
	}
	return text
}

func layoutText(t graph.Type, layouts []graph.Layout) string {
	text := ""
	for _, l := range layouts {
		t.Layout = l
		text += " " + t.String()
	}
	return text
}
