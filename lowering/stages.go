package lowering

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
)

// Stages cuts a graph in pipeline stages, and says how many replicas run them. A stage is a section
// of the schedule of one rank: the nodes of its blocks, with their parameters and states. Values
// that later stages need pass from stage to stage, from each rank to the one with the same share.
type Stages struct {
	// First has the first block of each stage but the first: layers.N. Nodes outside of all blocks
	// run as soon as their operands are there: the embedding in the first stage, the head in the
	// last.
	First []string
	// Replicas is the number of copies of the model that divide the sequences; 0: one.
	Replicas int
	// Chain lets recurrences over parts of sequences pass states from rank to rank. Otherwise they run
	// as the graph says.
	Chain bool
}

// mesh is the mesh of the stages of a graph.
func (p Stages) mesh(g *graph.Graph) graph.Mesh {
	m := g.Mesh
	if m == (graph.Mesh{}) {
		m[graph.TP] = g.Ranks
	}
	m[graph.PP], m[graph.DP] = 1+len(p.First), max(1, p.Replicas)
	return m
}

// one reports whether the graph is not cut, and runs once.
func (p Stages) one() bool { return len(p.First) == 0 && p.Replicas <= 1 }

// Of is the stage of each node of a graph: that of its block, and at least that of its operands.
// Leaves, and what depends on parameters alone, are in every stage that uses them: -1.
func (p Stages) Of(g *graph.Graph) ([]int, error) {
	blocks := g.Blocks()
	number := map[string]int{} // stages by block
	last := 0
	for _, name := range p.First {
		i := slices.Index(blocks, name)
		switch {
		case i < 0:
			return nil, fmt.Errorf("there is no block %s to begin a stage with; the model has %d blocks", name, len(blocks))
		case i <= last:
			return nil, fmt.Errorf("block %s begins a stage, and is not after the stage's before; stages begin at blocks after the first, in their order", name)
		}
		last = i
	}
	stage := 0
	for _, b := range blocks {
		if stage < len(p.First) && p.First[stage] == b {
			stage++
		}
		number[b] = stage
	}
	of := make([]int, g.Len()) // by value
	list := make([]int, len(g.Nodes))
	for i, n := range g.Nodes {
		list[i] = p.of(n, number[n.Block()], of)
		for _, v := range n.Results {
			of[v.ID] = list[i]
		}
	}
	return list, nil
}

// of is the stage of a node whose block has one, and whose operands' are known.
func (p Stages) of(n *graph.Node, block int, of []int) int {
	if n.Op.Class == graph.Leaf {
		return -1
	}
	constant := true
	for _, v := range n.Args {
		constant = constant && of[v.ID] < 0 && leafKind(v) == "param"
		block = max(block, of[v.ID])
	}
	if constant && len(n.Args) > 0 {
		return -1
	}
	return block
}

// leafKind is the operation of a value's leaf, where it depends on no other; "" where on several.
func leafKind(v *graph.Value) string {
	if v.Def.Op.Class == graph.Leaf {
		return v.Def.Op.Name
	}
	for _, a := range v.Def.Args {
		if leafKind(a) != "param" {
			return ""
		}
	}
	return "param"
}

// section is what one stage runs of a graph.
type section struct {
	nodes          map[*graph.Node]bool // nil: all
	received, sent []*graph.Value       // from the stage before, and to the next
	outputs        bool                 // it has the graph's
}

// sections cuts a graph.
func (p Stages) sections(g *graph.Graph) ([]section, error) {
	if len(p.First) == 0 {
		return []section{{outputs: true}}, nil
	}
	stage, err := p.Of(g)
	if err != nil {
		return nil, err
	}
	n := 1 + len(p.First)
	of, until := make([]int, g.Len()), make([]int, g.Len()) // by value: where it is made, and needed last
	out := make([]section, n)
	for i := range out {
		out[i] = section{nodes: map[*graph.Node]bool{}, outputs: i == n-1}
	}
	var include func(s int, n *graph.Node)
	include = func(s int, n *graph.Node) {
		if out[s].nodes[n] {
			return
		}
		out[s].nodes[n] = true
		for _, v := range n.Args {
			if of[v.ID] < 0 {
				include(s, v.Def)
			}
		}
	}
	use := func(s int, v *graph.Value) {
		if until[v.ID] = max(until[v.ID], s); of[v.ID] < 0 {
			include(s, v.Def)
		}
	}
	for i, node := range g.Nodes {
		for _, v := range node.Results {
			of[v.ID] = stage[i]
		}
		if stage[i] >= 0 {
			include(stage[i], node)
			for _, v := range node.Args {
				use(stage[i], v)
			}
		}
	}
	for _, o := range g.Outputs {
		use(n-1, o.Value)
	}
	for _, node := range g.Nodes {
		for _, v := range node.Results {
			for s := of[v.ID]; s >= 0 && s < until[v.ID]; s++ {
				out[s].sent, out[s+1].received = append(out[s].sent, v), append(out[s+1].received, v)
			}
		}
	}
	return out, checkSections(g, out)
}

// checkSections: a state is in one stage, and every stage but the last passes something on.
func checkSections(g *graph.Graph, list []section) error {
	for _, n := range g.Leaves("state") {
		users := 0
		for i := range list {
			if list[i].nodes[n] {
				users++
			}
		}
		if users > 1 {
			return fmt.Errorf("state %s is used in %d stages; cut the stages so that one has all blocks that use it", n.Name(), users)
		}
	}
	for i := range list[:len(list)-1] {
		if len(list[i].sent) == 0 {
			return fmt.Errorf("stage %d passes nothing on to stage %d", i, i+1)
		}
	}
	return nil
}

// has reports whether the section has a node.
func (c *section) has(n *graph.Node) bool { return c.nodes == nil || c.nodes[n] }

// receive appends the step that takes values from the stage before.
func (l *lowerer) receive(values []*graph.Value) error {
	for _, v := range values {
		if err := l.result(v, false); err != nil {
			return fmt.Errorf("%s, which comes from the stage before: %w", v.Name, err)
		}
	}
	if len(values) > 0 {
		l.exchanged(l.s.passing(Receive, l.refs(values), Comm))
	}
	return nil
}

// send appends the step that passes values on to the next stage.
func (l *lowerer) send(values []*graph.Value) {
	if len(values) > 0 {
		l.exchanged(l.s.passing(Send, l.refs(values), Comm))
	}
}
