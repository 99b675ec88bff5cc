// Package visualize draws graphs. It reads them and changes nothing.
package visualize

import (
	"fmt"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
)

// Options say what is drawn.
type Options struct {
	Block    string // only this block and what it takes and gives; empty: all
	Unfolded bool   // draw blocks that are the same as the one before, too
}

// Dot draws a graph in the language of Graphviz: a cluster per block, runs of
// identical blocks folded into one. The same graph gives the same text.
func Dot(g *graph.Graph, o Options) string {
	d := &drawing{
		g:      g,
		dot:    dot.NewGraph(dot.Directed),
		nodes:  map[*graph.Value]dot.Node{},
		stands: map[*graph.Value]*graph.Value{},
		blocks: map[string]*dot.Graph{},
	}
	d.dot.Attr("rankdir", "TB")
	d.dot.Attr("labelloc", "t")
	d.dot.Attr("fontname", "Helvetica")
	label := g.Name + ", stage " + g.Stage.String()
	if g.Ranks > 1 {
		label += fmt.Sprintf(", %d ranks (blue: split over them, red: a partial sum)", g.Ranks)
	}
	d.dot.Attr("label", label)
	d.dot.NodeInitializer(func(n dot.Node) {
		n.Attr("shape", "box").Attr("style", "rounded,filled").Attr("fillcolor", "white").Attr("fontname", "Helvetica").Attr("fontsize", "11")
	})
	d.dot.EdgeInitializer(func(e dot.Edge) {
		e.Attr("fontname", "Helvetica").Attr("fontsize", "9").Attr("color", "#555555").Attr("fontcolor", "#555555")
	})
	if !o.Unfolded && o.Block == "" {
		d.fold()
	}
	for _, n := range g.Nodes {
		if o.Block == "" || n.Block() == o.Block {
			d.node(n)
		}
	}
	for _, out := range g.Outputs {
		if v := d.standIn(out.Value); o.Block == "" || graph.BlockOf(v.Name) == o.Block {
			n := d.dot.Node("output "+out.Name).Label(out.Name).Attr("shape", "plaintext").Attr("style", "")
			d.edge(v, n)
		}
	}
	return d.dot.String()
}

type drawing struct {
	g      *graph.Graph
	dot    *dot.Graph
	nodes  map[*graph.Value]dot.Node
	stands map[*graph.Value]*graph.Value // values of folded blocks: the drawn ones
	blocks map[string]*dot.Graph
}

// colours by what a node does.
var colours = map[graph.Class]string{
	graph.Leaf: "#eeeeee", graph.View: "#f7f7f7", graph.Compute: "#ffffff", graph.Collective: "#ffd9b3", graph.Relayout: "#fff2cc",
}

// heavy operations have a colour of their own.
var heavy = map[string]string{"matmul": "#dae8fc", "head_down": "#dae8fc", "head_up": "#dae8fc", "experts": "#dae8fc",
	"conv1d": "#d5e8d4", "conv1d_silu": "#d5e8d4", "selective_scan": "#d5e8d4", "ssd_scan": "#d5e8d4", "attention": "#d5e8d4"}

// layoutColours tell at a glance what lies over the ranks, and how.
var layoutColours = map[graph.LayoutKind]string{graph.Sharded: "#1f5fa8", graph.Partial: "#c0392b"}

// fold lets runs of identical blocks be drawn once.
func (d *drawing) fold() {
	members := map[string][]*graph.Node{}
	for _, n := range d.g.Nodes {
		members[n.Block()] = append(members[n.Block()], n)
	}
	first, key := "", ""
	count := map[string]int{}
	for _, b := range d.g.Blocks() {
		k := graph.BlockKey(d.g, b)
		if first == "" || k != key {
			first, key = b, k
		}
		count[first]++
		for i, n := range members[b] {
			for j, v := range n.Results {
				if b != first {
					d.stands[v] = members[first][i].Results[j]
				}
			}
		}
	}
	for b, n := range count {
		if n > 1 {
			d.cluster(b).Attr("label", fmt.Sprintf("%s and the %d after it, which are the same", b, n-1))
		}
	}
}

func (d *drawing) standIn(v *graph.Value) *graph.Value {
	if s, ok := d.stands[v]; ok {
		return s
	}
	return v
}

func (d *drawing) cluster(block string) *dot.Graph {
	if block == "" {
		return d.dot
	}
	if d.blocks[block] == nil {
		c := d.dot.Subgraph(block, dot.ClusterOption{})
		c.Attr("style", "rounded")
		c.Attr("color", "#999999")
		c.Attr("fontname", "Helvetica")
		d.blocks[block] = c
	}
	return d.blocks[block]
}

// node draws what is not folded away. Parameters and states are named in the
// node that uses them, so that the picture shows how data flows.
func (d *drawing) node(n *graph.Node) {
	if _, folded := d.stands[n.Results[0]]; folded || quiet(n) {
		return
	}
	block := n.Block()
	lines := []string{strings.TrimPrefix(n.Name(), block+".")}
	if n.Op.Class != graph.Leaf {
		lines = append(lines, n.Op.Name)
	}
	if n.Op.Class == graph.Collective {
		lines = append(lines, collectiveLines(n)...)
	}
	for _, v := range n.Args {
		if quiet(v.Def) {
			lines = append(lines, sigil(v)+strings.TrimPrefix(v.Name, block+".")+" "+v.Type.String())
		}
	}
	box := d.cluster(block).Node(n.Name()).Label(strings.Join(lines, "\n")).Attr("fillcolor", colours[n.Op.Class])
	if c := heavy[n.Op.Name]; c != "" {
		box.Attr("fillcolor", c)
	}
	for _, v := range n.Results {
		d.nodes[v] = box
	}
	for _, v := range n.Args {
		if !quiet(v.Def) {
			d.edge(d.standIn(v), box)
		}
	}
}

// collectiveLines say why a collective is there, and what it carries.
func collectiveLines(n *graph.Node) []string {
	var bytes graph.Poly
	for _, v := range n.Args {
		bytes = bytes.Plus(v.Type.Bytes())
	}
	lines := []string{bytes.String() + " bytes"}
	for part := range strings.SplitSeq(n.Note, "; ") {
		if part != "" {
			lines = append(lines, part)
		}
	}
	return lines
}

// quiet nodes are not drawn: parameters, states and the batch's segments.
func quiet(n *graph.Node) bool {
	return n.Op.Name == "param" || n.Op.Name == "state" || n.Op.Name == "input" && n.Name() == "seg"
}

func sigil(v *graph.Value) string {
	if v.Def.Op.Name == "param" {
		return "@"
	}
	return "%"
}

// edge is labelled with the type that flows along it. What comes from outside
// of what is drawn has a box without a frame.
func (d *drawing) edge(v *graph.Value, to dot.Node) {
	from, ok := d.nodes[v]
	if !ok {
		from = d.dot.Node(v.Name).Label(v.Name).Attr("shape", "plaintext").Attr("style", "")
		d.nodes[v] = from
	}
	e := d.dot.Edge(from, to, v.Type.String())
	if c, ok := layoutColours[v.Type.Layout.Kind]; ok {
		e.Attr("color", c).Attr("fontcolor", c)
	}
}
