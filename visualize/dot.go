// Package visualize draws graphs and schedules, which it does not change.
//
// A picture has a column for the model, in which layers are a strip, and one for each kind of
// block: equal blocks are drawn once.
package visualize

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
)

// Detail is the level of detail of blocks.
type Detail uint8

// The details.
const (
	Ops    Detail = iota // every operation
	Blocks               // parts of blocks (mixer, attention, mlp), and collectives
	Model                // blocks as boxes, with their inputs
)

var details = [...]string{"op", "block", "model"}

// String returns the name of the detail.
func (d Detail) String() string { return details[d] }

// ParseDetail returns the detail of a name: op, block or model.
func ParseDetail(name string) (Detail, error) {
	for i, n := range details {
		if n == name {
			return Detail(i), nil
		}
	}
	return 0, fmt.Errorf("detail is %q; it must be model, block or op", name)
}

// Options select what to draw.
type Options struct {
	Block    string // draw only this block, its inputs and outputs; empty: all
	Detail   Detail
	Unfolded bool // draw every block, also equal ones
	Dark     bool // colours for a dark ground
	// Highlight frames the operations that it matches by name or operation; nil: none.
	Highlight *regexp.Regexp
	// Local draws types as Rank holds them, rather than as all ranks do.
	Local bool
	Rank  int
}

// Dot writes a graph as Graphviz text. The same graph gives the same text. A pattern to highlight
// that matches nothing is an error.
func Dot(w io.Writer, g *graph.Graph, o Options) error {
	p := newPicture(o.Dark)
	p.meshed = g.Mesh != (graph.Mesh{})
	d, err := p.drawing(g, o)
	if err != nil {
		return err
	}
	d.draw(o)
	return writeln(w, p.text(titleOf(g, o)))
}

// writeln writes a text and the end of its last line.
func writeln(w io.Writer, text string) error {
	_, err := io.WriteString(w, text+"\n")
	return err
}

func titleOf(g *graph.Graph, o Options) string {
	title := g.Name + ", stage " + g.Stage.String()
	if g.Ranks > 1 {
		title += fmt.Sprintf(", %d ranks", g.Ranks)
	}
	if g.Mesh != (graph.Mesh{}) {
		title += " (" + g.Mesh.String() + ")"
	}
	if o.Local {
		title += fmt.Sprintf(": what rank %d holds", o.Rank)
	}
	return title
}

// drawing is the picture of a graph, or one of two in a picture.
type drawing struct {
	*picture
	g       *graph.Graph
	detail  Detail
	local   bool
	rank    int
	users   map[*graph.Value][]*graph.Node
	typed   map[*graph.Value]bool // the picture has their types
	differ  map[*graph.Node]bool  // from the other drawing, or from the first kind of the letter
	matched map[*graph.Node]bool  // by the pattern

	compared bool // with another graph, rather than kinds of blocks with each other
}

func (p *picture) drawing(g *graph.Graph, o Options) (*drawing, error) {
	d := &drawing{picture: p, g: g, detail: o.Detail, local: o.Local, rank: o.Rank, users: map[*graph.Value][]*graph.Node{},
		typed: map[*graph.Value]bool{}, differ: map[*graph.Node]bool{}, matched: map[*graph.Node]bool{}}
	for _, n := range g.Nodes {
		for _, v := range n.Args {
			d.users[v] = append(d.users[v], n)
		}
	}
	return d, d.match(o)
}

func (d *drawing) draw(o Options) {
	switch {
	case o.Block != "":
		blocks := graphBlocks(d.g)
		if blocks[o.Block] == nil {
			blocks[o.Block] = &block{} // only parameters and states
		}
		d.kind(&kind{blocks: []string{o.Block}}, plain(o.Block), blocks)
	case o.Unfolded:
		d.unfolded()
	default:
		d.folded()
	}
	for _, f := range d.frames {
		f.title()
	}
}

// folded draws the model with its layers as strips, and each kind of block once.
func (d *drawing) folded() {
	blocks := graphBlocks(d.g)
	kinds, of := kindsOf(d.g.Blocks(), blocks)
	notes := map[int]*label{}
	for i, k := range kinds {
		d.gather(&k, blocks)
		if k.unlike != "" && !d.compared {
			d.differing(blocks[k.blocks[0]].nodes, blocks[k.unlike].nodes)
		}
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
		b := s.add(run)
		b.Attr("label", strip(blocksOf(run), kinds, of, notes)).Attr("style", "solid")
		if d.detail == Model {
			s.mark(b.Node, run)
		}
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

// unfolded draws every block.
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

// kind draws one of several equal blocks.
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

// part returns the box that a node shares with its neighbours; "": a box of its own.
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

// runs groups the nodes to draw into runs of one part. Nodes are in topological order, so no run
// depends on its own results through other nodes.
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
