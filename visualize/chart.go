package visualize

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/krait-ml/krait/internal/fonts"
)

// Chart is lines over an axis of equal steps.
type Chart struct {
	Title, X, Y string
	Ticks       []string // of the x axis
	Lines       []Line
}

// Line has a number per tick, from 0 to 1.
type Line struct {
	Name   string
	Values []float64
	Colour string // such as #1f5fa8
	Dashes string // of SVG, such as 4 3; empty: none
}

// Of the drawing, in pixels.
const (
	chartWidth, chartHeight = 520, 320
	chartLeft, chartTop     = 64, 40
)

// SVG draws the chart, from 0 to the next tenth over the largest number. The same chart
// gives the same text.
func (c *Chart) SVG(w io.Writer) error {
	_, err := io.WriteString(w, c.svg())
	return err
}

func (c *Chart) svg() string {
	top := 0.1
	for _, l := range c.Lines {
		for _, v := range l.Values {
			top = max(top, math.Ceil(v*10-1e-9)/10)
		}
	}
	x := func(i int) float64 {
		return chartLeft + chartWidth*(float64(i)+0.5)/float64(max(len(c.Ticks), 1))
	}
	y := func(v float64) float64 { return chartTop + chartHeight*(1-v/top) }
	var b strings.Builder
	text := func(x, y float64, anchor, s string, more string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, escape(s))
	}
	legend := 0.0
	for _, l := range c.Lines {
		legend = max(legend, fonts.Width(l.Name, 11, false))
	}
	width, height := chartLeft+chartWidth+44+wide(legend)+14, chartTop+chartHeight+56
	width = max(width, wide(fonts.Width(c.Title, 14, false))+28)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="11">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text(float64(width)/2, 22, "middle", c.Title, ` font-size="14"`)
	for i := range int(math.Round(top*10)) + 1 {
		v := float64(i) / 10
		fmt.Fprintf(&b, `<path d="M%d %.1fh%d" stroke="#e4e4e4"/>`+"\n", chartLeft, y(v), chartWidth)
		text(chartLeft-8, y(v)+4, "end", fmt.Sprintf("%d %%", i*10), "")
	}
	for i, t := range c.Ticks {
		fmt.Fprintf(&b, `<path d="M%.1f %dv4" stroke="%s"/>`+"\n", x(i), chartTop+chartHeight, grey)
		text(x(i), chartTop+chartHeight+18, "middle", t, "")
	}
	fmt.Fprintf(&b, `<path d="M%d %dv%dh%d" fill="none" stroke="%s"/>`+"\n", chartLeft, chartTop, chartHeight, chartWidth, grey)
	text(chartLeft+chartWidth/2, float64(height-14), "middle", c.X, "")
	text(0, 0, "middle", c.Y, fmt.Sprintf(` transform="translate(16 %d) rotate(-90)"`, chartTop+chartHeight/2))
	for i, l := range c.Lines {
		dashes := ""
		if l.Dashes != "" {
			dashes = fmt.Sprintf(` stroke-dasharray="%s"`, l.Dashes)
		}
		stroke := fmt.Sprintf(` fill="none" stroke="%s" stroke-width="1.8"%s`, l.Colour, dashes)
		var path strings.Builder
		for j, v := range l.Values {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x(j), y(v))
		}
		at := float64(chartTop + 10 + 18*i)
		fmt.Fprintf(&b, `<path d="%s"%s/>`+"\n", path.String(), stroke)
		fmt.Fprintf(&b, `<path d="M%d %.1fh24"%s/>`+"\n", chartLeft+chartWidth+14, at-4, stroke)
		text(chartLeft+chartWidth+44, at, "start", l.Name, "")
	}
	return b.String() + "</svg>\n"
}
