package visualize

import (
	"io"

	"github.com/krait-ml/krait/graph"
)

// Side is one of two graphs to compare.
type Side struct {
	Name string // above its drawing: a strategy, a number of ranks
	*graph.Graph
}

// Compare writes two graphs of a model side by side as Graphviz text. Operations that the other
// side does not have, or that differ there in attributes, types or layouts, have a dashed frame.
// Sides have no frames of their own: Graphviz does not keep the order of frames in a frame.
func Compare(w io.Writer, a, b Side, o Options) error {
	p := newPicture(o.Dark)
	for i, s := range []Side{a, b} {
		d, err := p.drawing(s.Graph, o)
		if err != nil {
			return err
		}
		d.unlike([]Side{b, a}[i].Graph)
		p.side, p.frames, p.clusters = s.Name, nil, map[string]*frame{}
		d.draw(o)
	}
	return writeln(w, p.text(a.Graph.Name+": "+a.Name+" and "+b.Name))
}

// unlike marks what differs from another graph, block by block.
func (d *drawing) unlike(other *graph.Graph) {
	byBlock := func(g *graph.Graph) map[string][]*graph.Node {
		out := map[string][]*graph.Node{}
		for _, n := range g.Nodes {
			if n.Op.Class != graph.Leaf {
				out[n.Block()] = append(out[n.Block()], n)
			}
		}
		return out
	}
	others := byBlock(other)
	for name, nodes := range byBlock(d.g) {
		d.differing(nodes, others[name])
	}
	d.compared = true
}
