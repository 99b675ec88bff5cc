package svg

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/fonts"
)

// Chart is lines over two axes. It is 520 × 320 pixels without its labels.
type Chart struct {
	Title, X, Y string
	Categories  []string // at x = 0, 1, …; nil: the x axis has numbers
	Percent     bool     // y has shares of 1
	Lines       []Line
}

// Line connects points. Its name, unless empty, is in the legend.
type Line struct {
	Name   string
	Colour string // such as #1f5fa8
	Dashes string // as SVG writes them, such as 4 3; empty: solid
	Points []Point
}

// Point is drawn as a dot with its name, or with an empty one as a dot if its line has no other.
type Point struct {
	X, Y float64
	Name string
}

const (
	plotWidth, plotHeight = 520.0, 320.0
	plotLeft, plotTop     = 72.0, 40.0
	plotBottom            = plotTop + plotHeight
	grey                  = "#666666"
)

// SVG draws the chart.
func (c *Chart) SVG() []byte {
	p := plot{Chart: c, Canvas: Canvas{Size: 11}}
	var right, top float64
	for _, l := range c.Lines {
		for _, v := range l.Points {
			right, top = max(right, v.X), max(top, v.Y)
		}
	}
	p.x, p.y = Linear(0, right), Linear(0, top)
	if c.Categories != nil {
		p.x = Axis{-0.5, float64(max(len(c.Categories), 1)) - 0.5, 1}
	}
	p.axes()
	p.width, p.height = plotLeft+plotWidth, plotBottom+56
	for i := range c.Lines {
		p.line(&c.Lines[i])
	}
	p.points()
	p.legend()
	width := math.Ceil(max(p.width, fonts.Width(c.Title, 14, false)+14) + 14)
	p.Text(width/2, 22, c.Title, "text-anchor", "middle", "font-size", 14)
	return p.Document(width, p.height)
}

// plot is a chart in the making.
type plot struct {
	*Chart
	Canvas
	x, y   Axis
	width  float64 // right edge of what was drawn
	height float64
}

func (p *plot) left(v float64) float64 { return plotLeft + plotWidth*p.x.At(v) }
func (p *plot) top(v float64) float64  { return plotTop + plotHeight*(1-p.y.At(v)) }

func (p *plot) axes() {
	for _, v := range p.y.Ticks() {
		label := fmt.Sprintf("%.6g", v)
		if p.Percent {
			label = fmt.Sprintf("%.6g %%", 100*v)
		}
		p.Path(fmt.Sprintf("M%g %.1fh%g", plotLeft, p.top(v), plotWidth), "#e4e4e4")
		p.Text(plotLeft-8, p.top(v)+4, label, "text-anchor", "end")
	}
	mark := func(v float64, label string) {
		p.Path(fmt.Sprintf("M%.1f %gv4", p.left(v), plotBottom), grey)
		p.Text(p.left(v), plotBottom+18, label, "text-anchor", "middle")
	}
	for i, name := range p.Categories {
		mark(float64(i), name)
	}
	if p.Categories == nil {
		for _, v := range p.x.Ticks() {
			mark(v, fmt.Sprintf("%.6g", v))
		}
	}
	p.Path(fmt.Sprintf("M%g %gv%gh%g", plotLeft, plotTop, plotHeight, plotWidth), grey)
	p.Text(plotLeft+plotWidth/2, plotBottom+42, p.X, "text-anchor", "middle")
	p.Text(0, 0, p.Y, "text-anchor", "middle", "transform", fmt.Sprintf("translate(16 %g) rotate(-90)", plotTop+plotHeight/2))
}

// style is how a line is drawn, in the plot and in the legend.
func (l *Line) style() []any {
	style := []any{"stroke-width", 1.8}
	if l.Dashes != "" {
		style = append(style, "stroke-dasharray", l.Dashes)
	}
	return style
}

func (p *plot) line(l *Line) {
	var path strings.Builder
	for i, v := range l.Points {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], p.left(v.X), p.top(v.Y))
	}
	p.Path(path.String(), l.Colour, l.style()...)
}

func (p *plot) points() {
	var names labels
	for _, l := range p.Lines {
		for _, v := range l.Points {
			x, y := p.left(v.X), p.top(v.Y)
			if v.Name != "" || len(l.Points) == 1 {
				p.Dot(x, y, 3.5, l.Colour)
			}
			if v.Name != "" {
				at := names.add(x, y, v.Name)
				p.Text(at.x, at.y, v.Name)
				p.width = max(p.width, at.x+at.width)
			}
		}
	}
}

// legend draws the legend, to the right of the plot and of the names of points.
func (p *plot) legend() {
	x, y := p.width+14, plotTop-8
	for _, l := range p.Lines {
		if l.Name == "" {
			continue
		}
		y += 18
		p.Path(fmt.Sprintf("M%g %.1fh24", x, y-4), l.Colour, l.style()...)
		p.Text(x+30, y, l.Name)
		p.width = max(p.width, x+30+fonts.Width(l.Name, 11, false))
	}
	p.height = max(p.height, y+14)
}

// labels places the names of points beside them, so that none covers another.
type labels []label

// label is a name: where its line begins, and its greatest width.
type label struct{ x, y, width float64 }

func (list *labels) add(x, y float64, name string) label {
	const line, off = 12.0, 7.0
	n := label{width: fonts.Width(name, 11, false)}
	free := func() bool {
		return !slices.ContainsFunc(*list, func(o label) bool {
			return math.Abs(o.y-n.y) < line && n.x < o.x+o.width && o.x < n.x+n.width
		})
	}
	for k := 0.0; ; k++ { // rightward and up, down, and further away
		for _, n.y = range []float64{y - 5 - k*line, y + 13 + k*line} {
			for _, n.x = range []float64{x + off, max(plotLeft, x-off-n.width)} {
				if free() {
					*list = append(*list, n)
					return n
				}
			}
		}
	}
}
