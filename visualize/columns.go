package visualize

import (
	"github.com/emicklei/dot"
)

// frame is a cluster and how deep it is: the model, or a kind of block.
type frame struct {
	*dot.Graph
	nodes []dot.Node
	level map[string]int // by id: of the nodes, from 0; arrows lead to higher ones
}

// put counts a node of the frame in.
func (f *frame) put(n dot.Node) dot.Node {
	f.nodes = append(f.nodes, n)
	return n
}

// link counts an arrow in. Those that lead to a node come before those from it.
func (f *frame) link(from, to dot.Node) {
	f.level[to.ID()] = max(f.level[to.ID()], f.level[from.ID()]+1)
}

// ends are the nodes that nothing leads to, and one that is farthest from them.
func (f *frame) ends() (roots []dot.Node, deepest dot.Node) {
	deepest = f.nodes[0]
	for _, n := range f.nodes {
		if f.level[n.ID()] == 0 {
			roots = append(roots, n)
		}
		if f.level[n.ID()] > f.level[deepest.ID()] {
			deepest = n
		}
	}
	return roots, deepest
}

// stack puts frames below others as long as the deepest frame stays the deepest
// column: Graphviz would put all side by side.
func (p *picture) stack() {
	type column struct {
		depth int
		last  dot.Node
	}
	most := 0
	depth := func(f *frame) int {
		_, d := f.ends()
		return f.level[d.ID()] + 1
	}
	for _, f := range p.frames {
		most = max(most, depth(f))
	}
	var columns []column
next:
	for _, f := range p.frames {
		roots, deepest := f.ends()
		for i, c := range columns {
			if c.depth+depth(f) > most {
				continue
			}
			for _, n := range roots {
				p.dot.Edge(c.last, n).Attr("style", "invis")
			}
			columns[i] = column{c.depth + depth(f), deepest}
			continue next
		}
		columns = append(columns, column{depth(f), deepest})
	}
}
