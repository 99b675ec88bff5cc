// Package svg writes drawings and line charts as SVG. The same input gives the same text.
package svg

import (
	"fmt"
	"html"
	"strings"
	"unicode"
)

// Attributes are the names and values of an element, in turn.
type Attributes []any

// Canvas collects the elements of a drawing. Numbers are pixels; Size is the default font size.
type Canvas struct {
	Size int
	body strings.Builder
}

func (c *Canvas) element(name, content string, lists ...Attributes) {
	c.body.WriteString("<" + name)
	for _, list := range lists {
		for i := 0; i < len(list); i += 2 {
			fmt.Fprintf(&c.body, ` %s="%s"`, list[i], value(list[i+1]))
		}
	}
	if content == "" {
		c.body.WriteString("/>\n")
		return
	}
	fmt.Fprintf(&c.body, ">%s</%s>\n", content, name)
}

// value writes coordinates with one digit after the point.
func value(v any) string {
	if f, ok := v.(float64); ok {
		return fmt.Sprintf("%.1f", f)
	}
	return Escape(fmt.Sprint(v))
}

// Text draws a line of text whose baseline begins at (x, y).
func (c *Canvas) Text(x, y float64, text string, more ...any) {
	c.element("text", Escape(text), Attributes{"x", x, "y", y}, more)
}

// Rect draws a rectangle. A viewer shows its tip, unless it is empty.
func (c *Canvas) Rect(x, y, width, height float64, fill, tip string, more ...any) {
	content := ""
	if tip != "" {
		content = "<title>" + Escape(tip) + "</title>"
	}
	c.element("rect", content, Attributes{"x", fmt.Sprintf("%.2f", x), "y", y, "width", fmt.Sprintf("%.2f", width), "height", height, "fill", fill}, more)
}

// Path draws the path of SVG commands d.
func (c *Canvas) Path(d, stroke string, more ...any) {
	c.element("path", "", Attributes{"d", d, "fill", "none", "stroke", stroke}, more)
}

// Dot draws a filled circle around (x, y).
func (c *Canvas) Dot(x, y, radius float64, fill string) {
	c.element("circle", "", Attributes{"cx", x, "cy", y, "r", radius, "fill", fill})
}

// Document returns the drawing on a white ground of width × height.
func (c *Canvas) Document(width, height float64) []byte {
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="Helvetica, Arial, sans-serif" font-size="%d" fill="#222222">
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s</svg>
`, width, height, width, height, c.Size, c.body.String())
}

// Escape returns text as XML or HTML shows it; characters that XML forbids become U+FFFD.
func Escape(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0xfffe || r == 0xffff {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")))
}
