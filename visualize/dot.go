// Package visualize draws graphs and schedules. It reads them and changes nothing.
//
// A picture has a column for the model, in which the layers are a strip, and one for
// each kind of block: blocks that do the same are drawn once, wherever they are.
package visualize

import (
	"fmt"
	"io"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
)

// Detail says how much of a block is drawn.
type Detail uint8

// The details.
const (
	Ops    Detail = iota // every operation
	Blocks               // parts of blocks (mixer, attention, mlp), and collectives
	Model                // blocks as boxes, with what they take
)

var details = [...]string{"op", "block", "model"}

// String is the name of the detail.
func (d Detail) String() string { return details[d] }

// ParseDetail reads the name of a detail: op, block or model.
func ParseDetail(name string) (Detail, error) {
	for i, n := range details {
		if n == name {
			return Detail(i), nil
		}
	}
	return 0, fmt.Errorf("detail %q: it is model, block or op", name)
}

// Options say what is drawn.
type Options struct {
	Block    string // only this block and what it takes and gives; empty: all
	Detail   Detail
	Unfolded bool // draw every block in its place
}

// Dot draws a graph in the language of Graphviz. The same graph gives the same text.
func Dot(w io.Writer, g *graph.Graph, o Options) error {
	return writeln(w, drawGraph(g, o))
}

// writeln writes a text and the end of its last line.
func writeln(w io.Writer, text string) error {
	_, err := io.WriteString(w, text+"\n")
	return err
}

func drawGraph(g *graph.Graph, o Options) string {
	title := g.Name + ", stage " + g.Stage.String()
	if g.Ranks > 1 {
		title += fmt.Sprintf(", %d ranks", g.Ranks)
	}
	d := &drawing{picture: newPicture(), g: g, detail: o.Detail, typed: map[*graph.Value]bool{}, users: map[*graph.Value][]*graph.Node{}}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			d.users[v] = append(d.users[v], n)
		}
	}
	switch {
	case o.Block != "":
		blocks := graphBlocks(g)
		if blocks[o.Block] == nil {
			blocks[o.Block] = &block{} // only parameters and states
		}
		d.kind(&kind{blocks: []string{o.Block}}, plain(o.Block), blocks)
	case o.Unfolded:
		d.unfolded()
	default:
		d.folded()
	}
	return d.text(title)
}

// drawing is of a graph.
type drawing struct {
	*picture
	g      *graph.Graph
	detail Detail
	users  map[*graph.Value][]*graph.Node
	typed  map[*graph.Value]bool // their types are in the picture
}

// folded draws the model with its layers as strips, and each kind of block.
func (d *drawing) folded() {
	blocks := graphBlocks(d.g)
	kinds, of := kindsOf(d.g.Blocks(), blocks)
	notes := map[int]*label{}
	for i, k := range kinds {
		if d.detail == Model {
			notes[i] = d.summary(blocks[k.blocks[0]].nodes)
		}
	}
	s := d.sheet(d.cluster("", plain("the model")), nil)
	for _, run := range runs(d.g.Nodes, func(n *graph.Node) string {
		if n.Block() != "" {
			return "layers"
		}
		return ""
	}) {
		if run[0].Block() == "" {
			s.box(run)
			continue
		}
		s.add(run).Attr("label", strip(blocksOf(run), kinds, of, notes)).Attr("style", "solid")
	}
	s.edges()
	for i := range kinds {
		if k := &kinds[i]; d.detail != Model {
			d.kind(k, k.title(), blocks)
		}
	}
	d.stack()
}

// blocksOf lists the blocks of nodes.
func blocksOf(nodes []*graph.Node) []string {
	var names []string
	seen := map[string]bool{}
	for _, n := range nodes {
		if b := n.Block(); !seen[b] {
			seen[b] = true
			names = append(names, b)
		}
	}
	return names
}

// unfolded draws every block where it is.
func (d *drawing) unfolded() {
	model := d.cluster("", plain("the model"))
	s := d.sheet(model, nil)
	for _, run := range runs(d.g.Nodes, d.part) {
		if s.at = model; run[0].Block() != "" {
			s.at = d.cluster(run[0].Block(), plain(run[0].Block()))
		}
		s.box(run)
	}
	s.at = model
	s.edges()
}

// kind draws one block of those that are the same.
func (d *drawing) kind(k *kind, title dot.HTML, blocks map[string]*block) {
	s := d.sheet(d.cluster(k.blocks[0], title), k)
	if k.colour != "" {
		attrs(s.at.Graph, "color", k.colour, "penwidth", "3")
	}
	s.look(blocks)
	for _, run := range runs(blocks[k.blocks[0]].nodes, d.part) {
		s.box(run)
	}
	s.edges()
	s.exits()
}

// part is what a node is drawn in, together with its neighbours; "" is by itself.
func (d *drawing) part(n *graph.Node) string {
	b := n.Block()
	switch {
	case d.detail == Ops || b == "":
		return ""
	case d.detail == Model:
		return b
	case n.Op.Class == graph.Collective:
		return ""
	}
	scope, _, inScope := strings.Cut(strings.TrimPrefix(n.Name(), b+"."), ".")
	if !inScope {
		return ""
	}
	return b + "." + scope
}

// runs cuts the nodes that are drawn into runs of one part. Nodes are in an order in
// which they can run, so no run can need what comes of it outside.
func runs(nodes []*graph.Node, part func(*graph.Node) string) [][]*graph.Node {
	var out [][]*graph.Node
	last := ""
	for _, n := range nodes {
		if n.Op.Class == graph.Leaf {
			continue
		}
		p := part(n)
		if p != "" && p == last {
			out[len(out)-1] = append(out[len(out)-1], n)
		} else {
			out = append(out, []*graph.Node{n})
		}
		last = p
	}
	return out
}
