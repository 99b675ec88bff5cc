package load

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/fonts"
)

// Of the drawing, in pixels.
const (
	chartWidth, chartHeight = 520, 320
	chartLeft, chartTop     = 72, 40
)

// SVG draws a point for each load that has both: its throughput, per rank if the ranks are known,
// over its tokens per second per user. The same report gives the same text.
func (r *Report) SVG() []byte {
	throughput := func(x *Result) float64 { return x.PerRank }
	title, axis := strings.Map(shown, r.Model), "tokens per second per rank"
	switch r.Ranks {
	case 0:
		throughput, axis = func(x *Result) float64 { return x.TokensPerSecond }, "tokens per second"
	case 1:
		title += ", 1 rank"
	default:
		title += fmt.Sprintf(", %d ranks", r.Ranks)
	}
	var points []*Result
	var right, top float64
	for i := range r.Loads {
		if x := &r.Loads[i]; x.PerUser != nil {
			points = append(points, x)
			right, top = max(right, *x.PerUser), max(top, throughput(x))
		}
	}
	right, stepX := scale(right)
	top, stepY := scale(top)
	x := func(v float64) float64 { return chartLeft + chartWidth*v/right }
	y := func(v float64) float64 { return chartTop + chartHeight*(1-v/top) }
	var b strings.Builder
	text := func(x, y float64, anchor, s, more string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(s))
	}
	names := placing{}
	for _, p := range points {
		names.add(x(*p.PerUser), y(throughput(p)), p.Name())
	}
	const height = chartTop + chartHeight + 56
	width := int(max(names.right, chartLeft+chartWidth, fonts.Width(title, 14, false))) + 14
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="11">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text(float64(width)/2, 22, "middle", title, ` font-size="14"`)
	for v := 0.0; v <= top*(1+1e-9); v += stepY {
		fmt.Fprintf(&b, `<path d="M%d %.1fh%d" stroke="#e4e4e4"/>`+"\n", chartLeft, y(v), chartWidth)
		text(chartLeft-8, y(v)+4, "end", fmt.Sprintf("%.6g", v), "")
	}
	for v := 0.0; v <= right*(1+1e-9); v += stepX {
		fmt.Fprintf(&b, `<path d="M%.1f %dv4" stroke="#666666"/>`+"\n", x(v), chartTop+chartHeight)
		text(x(v), chartTop+chartHeight+18, "middle", fmt.Sprintf("%.6g", v), "")
	}
	fmt.Fprintf(&b, `<path d="M%d %dv%dh%d" fill="none" stroke="#666666"/>`+"\n", chartLeft, chartTop, chartHeight, chartWidth)
	text(chartLeft+chartWidth/2, height-14, "middle", "tokens per second per user", "")
	text(0, 0, "middle", axis, fmt.Sprintf(` transform="translate(16 %d) rotate(-90)"`, chartTop+chartHeight/2))
	var path strings.Builder
	for i, p := range points {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(*p.PerUser), y(throughput(p)))
	}
	fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="#1f5fa8" stroke-width="1.8"/>`+"\n", path.String())
	for i, p := range points {
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="#1f5fa8"/>`+"\n", x(*p.PerUser), y(throughput(p)))
		text(names.list[i].x, names.list[i].y, "start", p.Name(), "")
	}
	return []byte(b.String() + "</svg>\n")
}

// placing puts the names of points beside them, where no other name or point is.
type placing struct {
	list  []placed
	right float64 // where the rightmost ends
}

// placed is a name: where its line begins, and how wide it is at most.
type placed struct{ x, y, width float64 }

func (p *placing) add(x, y float64, name string) {
	const line, off = 12.0, 7.0
	n := placed{width: fonts.Width(name, 11, false)}
	free := func() bool {
		return !slices.ContainsFunc(p.list, func(o placed) bool {
			return math.Abs(o.y-n.y) < line && n.x < o.x+o.width && o.x < n.x+n.width
		})
	}
	for k := 0.0; ; k++ { // rightward and up, down, and further away
		for _, n.y = range []float64{y - 5 - k*line, y + 13 + k*line} {
			for _, n.x = range []float64{x + off, max(chartLeft, x-off-n.width)} {
				if free() {
					p.list, p.right = append(p.list, n), max(p.right, n.x+n.width)
					return
				}
			}
		}
	}
}

// scale is the end of an axis that has room for v, and the step of its marks: 1, 2 or 5 times a
// power of ten, of which there are four to ten.
func scale(v float64) (end, step float64) {
	if !(v > 0) {
		return 1, 0.25
	}
	step = math.Pow(10, math.Floor(math.Log10(v)))
	for _, k := range []float64{0.1, 0.2, 0.5, 1} {
		if v <= 10*k*step {
			step *= k
			break
		}
	}
	if v <= 5*step {
		step /= 2
	}
	return step * math.Ceil(v/step-1e-9), step
}

// shown leaves out what XML may not have.
func shown(c rune) rune {
	if c < ' ' || c == 0xfffe || c == 0xffff {
		return -1
	}
	return c
}
