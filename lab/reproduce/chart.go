package reproduce

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart draws ranges below each other: what is published above what is simulated. Ranges
// that are one number are drawn as a mark.
func chart(title string, lines []*Line, log bool) string {
	const left, width, row, top = 330, 520, 34, 64
	var rows []*Line
	all := empty()
	for _, x := range lines {
		if x.simulated.lo <= x.simulated.hi && x.published.lo <= x.published.hi {
			rows = append(rows, x)
			for _, s := range []span{x.published, x.simulated} {
				all.add(s.lo)
				all.add(s.hi)
			}
		}
	}
	a := axis{log: log, span: all}
	a.round()
	height := top + row*len(rows) + 30
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", left+width+40, height, left+width+40, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	fmt.Fprintf(&b, `<text x="12" y="22" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(title))
	fmt.Fprintf(&b, `<rect x="%d" y="34" width="22" height="9" fill="#b8bec6"/><text x="%d" y="43">published</text><rect x="%d" y="34" width="22" height="9" fill="#1f6fb2"/><text x="%d" y="43">simulated</text>`+"\n", left, left+28, left+110, left+138)
	at := func(x float64) float64 { return left + width*a.place(x) }
	for _, tick := range a.ticks() {
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#e3e6ea"/><text x="%.1f" y="%d" text-anchor="middle" fill="#555">%g</text>`+"\n", at(tick), top-8, height-24, at(tick), height-8, tick)
	}
	for i, x := range rows {
		y := top + row*i
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y+13, html.EscapeString(label(x)))
		for k, s := range []span{x.published, x.simulated} {
			from, to := at(s.lo), at(s.hi)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="9" fill="%s"><title>%s</title></rect>`+"\n", min(from, to-3), y+11*k-2, max(to-from, 4), []string{"#b8bec6", "#1f6fb2"}[k],
				html.EscapeString([]string{x.Published, x.Simulated}[k]))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// label is a claim's without the name of its section, which the title says.
func label(x *Line) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(x.Claim, "+"), ".")
	c := x.claim
	if len(c.Models) > 0 && !strings.Contains(rest, c.Models[0]) {
		rest += "." + strings.Join(c.Models, ",")
	}
	return strings.ReplaceAll(rest, ".", " ") + unitSuffix(c.Unit)
}

func unitSuffix(unit string) string {
	if unit == "" || unit == "tokens" {
		return ""
	}
	return ", " + unit
}

// axis is from left to right, of logarithms or not.
type axis struct {
	span
	log  bool
	step float64
}

// round lets the axis begin and end at ticks.
func (a *axis) round() {
	if a.log {
		a.lo = math.Pow(10, math.Floor(math.Log10(max(a.lo, 1))))
		a.hi = math.Pow(10, math.Ceil(math.Log10(max(a.hi, 10))))
		return
	}
	a.lo, a.hi = min(0, a.lo), max(a.hi, a.lo+1)
	a.step = math.Pow(10, math.Floor(math.Log10(a.hi-a.lo)))
	for (a.hi-a.lo)/a.step < 5 {
		a.step /= 2
	}
	a.lo, a.hi = math.Floor(a.lo/a.step)*a.step, math.Ceil(a.hi/a.step)*a.step
}

// place is where a number is, from 0 to 1; what is below an axis of logarithms is at its
// beginning.
func (a *axis) place(x float64) float64 {
	if a.log {
		return math.Log(max(x, a.lo)/a.lo) / math.Log(a.hi/a.lo)
	}
	return (x - a.lo) / (a.hi - a.lo)
}

func (a *axis) ticks() (list []float64) {
	if a.log {
		for x := a.lo; x <= a.hi*1.001; x *= 10 {
			list = append(list, x)
		}
		return list
	}
	for i := 0; ; i++ {
		x := a.lo + float64(i)*a.step
		if x > a.hi+a.step/2 {
			return list
		}
		list = append(list, x)
	}
}
