package visualize

import (
	"fmt"
	"math"
	"strings"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/internal/fonts"
	"github.com/krait-ml/krait/visualize/svg"
)

// picture builds Graphviz text. Ids of nodes and clusters increase, since Graphviz lays out earlier
// ones further to the left.
type picture struct {
	dot      *dot.Graph
	side     string // of a comparison, above the titles of frames
	frames   []*frame
	clusters map[string]*frame
	count    int
	met      map[string]bool // entries of the legend
	dark     bool
	meshed   bool // ranks are along tp and cp; colours are of tp
}

func newPicture(dark bool) *picture {
	p := &picture{dot: dot.NewGraph(dot.Directed), clusters: map[string]*frame{}, met: map[string]bool{}, dark: dark}
	// Curves can leave their frame; polylines do not.
	attrs(p.dot, "splines", "polyline", "rankdir", "TB", "labelloc", "t", "fontname", fontName, "fontcolor", black,
		"bgcolor", white, "nodesep", "0.2", "ranksep", "0.3")
	p.dot.NodeInitializer(func(n dot.Node) {
		n.Attr("shape", "box").Attr("style", "rounded,filled").Attr("fillcolor", white).Attr("fontcolor", black).Attr("color", grey).
			Attr("fontname", fontName).Attr("fontsize", fmt.Sprint(textSize)).Attr("margin", "0.06,0.03").Attr("height", "0.2")
	})
	p.dot.EdgeInitializer(func(e dot.Edge) { e.Attr("color", grey).Attr("arrowsize", "0.7") })
	return p
}

// fontName lists substitutes for Helvetica.
const fontName = "Helvetica,Arial,sans-serif"

// The sizes of text, in points.
const (
	titleSize = 16 // the picture's title
	headSize  = 13 // frames, strips, collectives
	textSize  = 11 // operations and names
	noteSize  = 9  // types, notes
)

func (p *picture) next() string {
	p.count++
	return fmt.Sprintf("%06d", p.count)
}

// cluster returns the frame of a name, with an HTML title.
func (p *picture) cluster(name string, title dot.HTML) *frame {
	f := p.clusters[name]
	if f == nil {
		if p.side != "" {
			title = dot.HTML(fmt.Sprintf(`<table border="0" cellborder="0" cellspacing="0"><tr><td align="left">%s</td></tr><tr><td align="left">%s</td></tr></table>`, oneLine(p.side, "", headSize, true).html(), title))
		}
		f = &frame{Graph: p.dot.Subgraph(p.next(), dot.ClusterOption{}), level: map[string]int{}, scopes: map[string]*scope{}}
		f.Attr("label", title)
		attrs(f.Graph, "labeljust", "l", "style", "rounded", "color", frameGrey, "fontname", fontName, "fontcolor", black, "margin", "12")
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
	return at.put(textNode(at.Graph, p.next(), label))
}

// textNode adds a node that is only text.
func textNode(g *dot.Graph, id string, label dot.HTML) dot.Node {
	return g.Node(id).Attr("label", label).Attr("shape", "plaintext").Attr("style", "").Attr("margin", "0.03,0.02")
}

// text ends the picture, with its title and legend.
func (p *picture) text(title string) string {
	p.dot.Attr("label", dot.HTML(fmt.Sprintf(`<table border="0" cellborder="0" cellspacing="4"><tr><td width="%d"><font point-size="%d"><b>%s</b></font></td></tr><tr><td>%s</td></tr></table>`,
		wide(1.3*fonts.Width(title, titleSize, true)), titleSize, svg.Escape(title), p.legend())))
	if p.dark {
		return darkened.Replace(p.dot.String())
	}
	return p.dot.String()
}

// label is lines of text in HTML, a row each, with the greatest width in any font: Graphviz
// measures with its machine's fonts, and viewers have others. Lines are left-aligned, since
// Graphviz would center a line by its measured width, and a wider one would leave its box.
type label struct {
	rows          []string
	width, height float64
	states        []*label // below the rows
}

// line adds a line; an empty colour is black.
func (l *label) line(text, colour string, size int, bold bool) {
	l.width = max(l.width, fonts.Width(text, float64(size), bold))
	l.height += 1.3*float64(size) + 2*labelPadding
	if text = svg.Escape(text); bold {
		text = "<b>" + text + "</b>"
	}
	if colour == "" {
		colour = black
	}
	l.rows = append(l.rows, fmt.Sprintf(`<font point-size="%d" color="%s">%s</font>`, size, colour, text))
}

const labelPadding = 1 // around a line

// html returns the table of a label, above the tables of its states, all of one width.
func (l *label) html() dot.HTML {
	if len(l.states) == 0 {
		return l.table(`border="0"`)
	}
	width, c := l.width, colourOf("state")
	for _, s := range l.states {
		width = max(width, s.width)
	}
	own := *l
	own.width = width
	var b strings.Builder
	fmt.Fprintf(&b, `<table border="0" cellborder="0" cellspacing="2" cellpadding="0"><tr><td>%s</td></tr>`, own.table(`border="0"`))
	for _, s := range l.states {
		own := *s
		own.width = width
		fmt.Fprintf(&b, "<tr><td>%s</td></tr>", own.table(fmt.Sprintf(`border="1" bgcolor="%s" color="%s"`, c.fill, c.line)))
	}
	return dot.HTML(b.String() + "</table>")
}

func (l *label) table(frame string) dot.HTML {
	cell := fmt.Sprintf(`<td align="left" width="%d">`, wide(l.width)+2*labelPadding)
	var b strings.Builder
	fmt.Fprintf(&b, `<table %s cellborder="0" cellspacing="0" cellpadding="%d">`, frame, labelPadding)
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
	l.line(text, "", textSize, false)
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
