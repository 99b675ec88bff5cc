package visualize

import (
	"fmt"
	"math"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/fonts"
	"github.com/krait-ml/krait/visualize/svg"
)

// picture builds Graphviz text. Ids of nodes and clusters increase, since Graphviz lays out earlier
// ones further to the left.
type picture struct {
	dot      *dot.Graph
	frames   []*frame
	clusters map[string]*frame
	count    int
	met      map[string]bool // entries of the legend
}

func newPicture() *picture {
	p := &picture{dot: dot.NewGraph(dot.Directed), clusters: map[string]*frame{}, met: map[string]bool{}}
	// Curves can leave their frame; polylines do not.
	attrs(p.dot, "splines", "polyline", "rankdir", "TB", "labelloc", "t", "fontname", fontName, "nodesep", "0.2", "ranksep", "0.3")
	p.dot.NodeInitializer(func(n dot.Node) {
		n.Attr("shape", "box").Attr("style", "rounded,filled").Attr("fillcolor", "white").
			Attr("fontname", fontName).Attr("fontsize", "11").Attr("margin", "0.06,0.03").Attr("height", "0.2")
	})
	p.dot.EdgeInitializer(func(e dot.Edge) { e.Attr("color", grey).Attr("arrowsize", "0.7") })
	return p
}

// fontName lists substitutes for Helvetica.
const fontName = "Helvetica,Arial,sans-serif"

func (p *picture) next() string {
	p.count++
	return fmt.Sprintf("%06d", p.count)
}

// cluster returns the frame of a name, with an HTML title.
func (p *picture) cluster(name string, title dot.HTML) *frame {
	f := p.clusters[name]
	if f == nil {
		f = &frame{Graph: p.dot.Subgraph(p.next(), dot.ClusterOption{}), level: map[string]int{}}
		f.Attr("label", title)
		attrs(f.Graph, "labeljust", "l", "style", "rounded", "color", "#999999", "fontname", fontName, "margin", "16")
		p.clusters[name] = f
		p.frames = append(p.frames, f)
	}
	return f
}

// attrs sets attributes of a graph or cluster: names and values in turn.
func attrs(g *dot.Graph, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		g.Attr(pairs[i], pairs[i+1])
	}
}

// frameless adds a name without a box.
func (p *picture) frameless(at *frame, label dot.HTML) dot.Node {
	return at.put(at.Node(p.next())).Attr("label", label).Attr("shape", "plaintext").Attr("style", "").Attr("margin", "0.03,0.02")
}

// text ends the picture, with its title and legend.
func (p *picture) text(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<table border="0" cellborder="0" cellspacing="4"><tr><td width="%d"><font point-size="16">%s</font></td></tr><tr><td><table border="0" cellborder="0" cellspacing="6"><tr>`, wide(1.3*fonts.Width(title, 16, false)), svg.Escape(title))
	empty := true
	for _, c := range legend {
		if p.met[c.name] {
			empty = false
			fmt.Fprintf(&b, `<td bgcolor="%s" border="1" color="%s" fixedsize="true" width="22" height="16"></td><td width="%d" align="left"><font point-size="10">%s</font></td>`, c.fill, c.line, wide(fonts.Width(c.text, 10, false))+8, c.text)
		}
	}
	if empty {
		b.WriteString("<td></td>")
	}
	b.WriteString("</tr></table></td></tr></table>")
	p.dot.Attr("label", dot.HTML(b.String()))
	return p.dot.String()
}

const grey = "#666666"

// colour is an entry of the legend.
type colour struct{ name, fill, line, text string }

// legend has all colours except those of kinds, which strips and titles explain. Boxes and arrows
// have the colours of layouts; on one rank boxes have those of work.
var legend = []colour{
	{"input", "#eeeeee", "#999999", "input"},
	{"whole", "#ffffff", grey, "whole on every rank"},
	{"split", "#dce9f7", "#1f5fa8", "split over the ranks"},
	{"partial", "#f9dcd8", "#c0392b", "partial: a summand on every rank"},
	{"multiply", "#dae8fc", "#6c8ebf", "products with weights"},
	{"mix", "#d5e8d4", "#82b366", "mixes tokens: convolution, scan, attention"},
	{"other", "#ffffff", grey, "other operations"},
	{"collective", "#ffb347", "#a04a00", "collective, with its payload"},
	{"kernel", "#ffffff", grey, "other kernels"},
	{"relayout", "#fff2cc", "#d6b656", "another layout without any exchange"},
	{"event", "#ffffff", "#c0392b", "dashed arrow: waits for the other stream"},
	{"state", "#d5e8d4", grey, "with a snapshot: a prompt can resume from it"},
	{"bare", "#ffffff", grey, "attention's cache only"},
	{"next", "#ffffff", "#c0392b", "what would be evicted next"},
}

// colour returns an entry of the legend, and marks it as used.
func (p *picture) colour(name string) colour {
	p.met[name] = true
	for _, c := range legend {
		if c.name == name {
			return c
		}
	}
	panic("BUG: no colour " + name)
}

var layoutColours = map[graph.LayoutKind]string{graph.Replicated: "whole", graph.Sharded: "split", graph.Partial: "partial"}

// heavy are products with weights.
var heavy = map[string]string{"matmul": "multiply", "matmul_add": "multiply", "norm_matmul": "multiply", "norm_matmul_add": "multiply", "gated_matmul": "multiply", "norm_gated_matmul": "multiply", "head_down": "multiply", "head_up": "multiply", "experts": "multiply", "ungated_experts": "multiply", "add_experts": "multiply", "add_ungated_experts": "multiply", "norm_router": "multiply", "embedding": "multiply"}

// Work returns the kind of an operation: multiply (a product with weights), mix (an operation with
// a state), or other.
func Work(op string) string {
	if row, ok := graph.Lookup(op); ok && len(row.States) > 0 {
		return "mix"
	}
	if w := heavy[op]; w != "" {
		return w
	}
	return "other"
}

// label is lines of text in HTML, a row each, with the greatest width in any font: Graphviz
// measures with its machine's fonts, and viewers have others. Lines are left-aligned, since
// Graphviz would center a line by its measured width, and a wider one would leave its box.
type label struct {
	rows  []string
	width float64
}

// line adds a line; an empty colour is black.
func (l *label) line(text, colour string, size int, bold bool) {
	l.width = max(l.width, fonts.Width(text, float64(size), bold))
	if text = svg.Escape(text); bold {
		text = "<b>" + text + "</b>"
	}
	if colour == "" {
		colour = "black"
	}
	l.rows = append(l.rows, fmt.Sprintf(`<font point-size="%d" color="%s">%s</font>`, size, colour, text))
}

const labelPadding = 1 // around a line

func (l *label) html() dot.HTML {
	cell := fmt.Sprintf(`<td align="left" width="%d">`, wide(l.width)+2*labelPadding)
	var b strings.Builder
	fmt.Fprintf(&b, `<table border="0" cellborder="0" cellspacing="0" cellpadding="%d">`, labelPadding)
	for _, row := range l.rows {
		fmt.Fprintf(&b, "<tr>%s%s</td></tr>", cell, row)
	}
	return dot.HTML(b.String() + "</table>")
}

// wide rounds a width up to whole points.
func wide(points float64) int { return int(math.Ceil(points)) }

// plain returns a label of one line.
func plain(text string) dot.HTML {
	var l label
	l.line(text, "", 11, false)
	return l.html()
}

// wrapped breaks a text at blanks into lines of about a width.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for _, w := range strings.Split(text, " ") {
		if line != "" && len(line)+1+len(w) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + w)
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
