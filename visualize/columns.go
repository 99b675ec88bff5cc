package visualize

import (
	"slices"

	"github.com/emicklei/dot"
)

// frame is a cluster with the levels of its nodes: the model, or a kind of block.
type frame struct {
	*dot.Graph
	scopes map[string]*scope // in it, by name: mixer, attention
	nodes  []dot.Node
	level  map[string]int // by id: of the nodes, from 0; arrows lead to higher ones
}

// put adds a node to the frame.
func (f *frame) put(n dot.Node) dot.Node {
	f.nodes = append(f.nodes, n)
	return n
}

// scope is a cluster in a frame.
type scope struct {
	*dot.Graph
	name, last dot.Node
}

// add adds a node to a scope of the frame; to the frame itself if the scope's name is empty.
func (f *frame) add(name string, next func() string) dot.Node {
	if name == "" {
		return f.put(f.Node(next()))
	}
	c := f.scopes[name]
	if c == nil {
		c = &scope{Graph: f.Subgraph(next(), dot.ClusterOption{})}
		attrs(c.Graph, "label", "", "style", "rounded,dotted", "color", grey, "margin", "8")
		// The name is a node, since Graphviz leads arrows around nodes but not around labels.
		c.name = textNode(c.Graph, next(), oneLine(name, grey, noteSize, true).html())
		f.scopes[name] = c
	}
	c.last = c.Node(next())
	return f.put(c.last)
}

// title sets the names of scopes beside their last nodes, where most have room.
func (f *frame) title() {
	for _, c := range f.scopes {
		c.AddToSameRank("last", c.name, c.last)
	}
}

// link adds an arrow. Arrows to a node are added before arrows from it.
func (f *frame) link(from, to dot.Node) {
	f.level[to.ID()] = max(f.level[to.ID()], f.level[from.ID()]+1)
}

// at returns the nodes of a level.
func (f *frame) at(level int) []dot.Node {
	var out []dot.Node
	for _, n := range f.nodes {
		if f.level[n.ID()] == level {
			out = append(out, n)
		}
	}
	return out
}

// depth returns the number of levels.
func (f *frame) depth() int {
	most := 0
	for _, n := range f.nodes {
		most = max(most, f.level[n.ID()]+1)
	}
	return most
}

// widest returns the most nodes on a level, except those without incoming arrows.
func (f *frame) widest() int {
	most := 1
	count := map[int]int{}
	for _, n := range f.nodes {
		if l := f.level[n.ID()]; l > 0 {
			count[l]++
			most = max(most, count[l])
		}
	}
	return most
}

// A picture has at most widthMax nodes on a level if its depth stays within depthMax: that is 3,000
// by 3,500 points.
const widthMax, depthMax = 12, 38

// stack places frames below others: Graphviz would place all side by side.
func (p *picture) stack() {
	p.frames = slices.DeleteFunc(p.frames, func(f *frame) bool { return len(f.nodes) == 0 })
	deepest := 0
	for _, f := range p.frames {
		deepest = max(deepest, f.depth())
	}
	columns, width := columnsOf(p.frames, deepest)
	for d := deepest + 1; d <= depthMax && width > widthMax; d++ {
		if c, w := columnsOf(p.frames, d); w < width {
			columns, width = c, w
		}
	}
	for _, c := range columns {
		for i, f := range c[1:] {
			for _, n := range f.at(0) {
				p.dot.Edge(c[i].at(c[i].depth() - 1)[0], n).Attr("style", "invis").Attr("weight", "30")
			}
		}
	}
}

// columnsOf assigns each frame to the first column that has room, and returns the resulting width
// in nodes.
func columnsOf(frames []*frame, most int) (columns [][]*frame, width int) {
	var depths, widths []int
next:
	for _, f := range frames {
		for i := range columns {
			if depths[i]+f.depth() <= most {
				columns[i] = append(columns[i], f)
				depths[i] += f.depth()
				widths[i] = max(widths[i], f.widest())
				continue next
			}
		}
		columns, depths, widths = append(columns, []*frame{f}), append(depths, f.depth()), append(widths, f.widest())
	}
	for _, w := range widths {
		width += w
	}
	return columns, width
}
