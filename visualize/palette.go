package visualize

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/fonts"
)

// The colours are tints and shades of Okabe and Ito's eight ("Color Universal Design", 2008), which
// people with any colour vision tell apart. No mark is a colour alone: layouts are written in
// types, collectives have square corners, kinds of blocks letters.
const (
	black     = "#1a1a1a"
	white     = "#ffffff"
	grey      = "#5c5c5c"
	frameGrey = "#999999"
)

// darkened replaces colours by those of the dark variant. In Graphviz text they are in quotes,
// which names of models are not: those are escaped.
var darkened = strings.NewReplacer(quoted(
	black, "#ececec", white, "#16191d", grey, "#aeb4bd", frameGrey, "#6a7078",
	"#f1f1f1", "#2a2e34", "#d5ecf9", "#1f4258", "#005b94", "#6cc3f2", "#f9e2d2", "#57310f", "#a54a00", "#f59a5c",
	"#f3bb4d", "#7d5700", "#6e4c00", "#f2bd4a", "#cce3f0", "#173c56", "#0068a3", "#5fb4e6", "#ccece3", "#114a3a", "#00694d", "#3fcfa6",
	"#fbf7c6", "#48451a", "#7a7200", "#efe35a", "#f2dde9", "#4b2e40", "#94406d", "#e6a6c9",
	"#9ad2f2", "#2b6a8f", "#f2cc7a", "#80590a", "#7fcdb8", "#0e6b52", "#e3bad2", "#7a4866",
	"#f6ef9b", "#6f681c", "#e8a77a", "#83430f", "#80b8d8", "#134f78", "#cfcfcf", "#55585e")...)

func quoted(colours ...string) []string {
	for i, c := range colours {
		colours[i] = `"` + c + `"`
	}
	return colours
}

// kindColours are the colours of kinds, in strips and frames; further kinds repeat them.
var kindColours = []string{"#7fcdb8", "#f6ef9b", "#e3bad2", "#9ad2f2", "#e8a77a", "#cfcfcf", "#f2cc7a", "#80b8d8"}

// colour is an entry of the legend. border has the attributes of its box there.
type colour struct{ name, fill, line, border, text string }

// entries has all colours and marks except those of kinds, which strips and titles explain. Boxes
// and arrows have the colours of layouts; on one rank boxes have those of work.
var entries = []colour{
	{"input", "#f1f1f1", frameGrey, "", "input"},
	{"whole", white, grey, "", "whole on every rank"},
	{"split", "#d5ecf9", "#005b94", "", "split over ranks (÷ marks the axis)"},
	{"partial", "#f9e2d2", "#a54a00", "", "partial: a summand on every rank"},
	{"multiply", "#cce3f0", "#0068a3", "", "products with weights"},
	{"mix", "#ccece3", "#00694d", "", "mixes tokens: convolution, scan, attention"},
	{"other", white, grey, "", "other operations"},
	{"collective", "#f3bb4d", "#6e4c00", "", "collective, with its payload"},
	{"kernel", white, grey, "", "other kernels"},
	{"relayout", "#fbf7c6", "#7a7200", "", "another layout without any exchange"},
	{"state", "#f2dde9", "#94406d", "", "state of a sequence, updated in place"},
	{"event", white, "#a54a00", `style="dashed"`, "dashed arrow: waits for the other stream"},
	{"snapshot", "#ccece3", grey, "", "with a snapshot: a prompt can resume from it"},
	{"bare", white, grey, "", "attention's cache only"},
	{"next", white, "#a54a00", "", "what would be evicted next"},
	{"differs", white, black, `style="dashed"`, "dashed frame: only here, or different there"},
	{"match", white, black, `border="3"`, "thick frame: matches the pattern"},
}

// colour returns an entry of the legend, and marks it as used.
func (p *picture) colour(name string) colour {
	p.met[name] = true
	return colourOf(name)
}

func colourOf(name string) colour {
	for _, c := range entries {
		if c.name == name {
			return c
		}
	}
	panic("BUG: no colour " + name)
}

// legend returns the cells of the entries that the picture uses, at most legendRow in a row.
func (p *picture) legend() string {
	const legendRow = 4
	var b strings.Builder
	b.WriteString(`<table border="0" cellborder="0" cellspacing="5"><tr>`)
	n := 0
	for _, c := range entries {
		if !p.met[c.name] {
			continue
		}
		if n > 0 && n%legendRow == 0 {
			b.WriteString("</tr><tr>")
		}
		n++
		border := c.border
		if !strings.Contains(border, "border=") {
			border += ` border="1"`
		}
		text := c.text
		if p.meshed {
			text = strings.NewReplacer("every rank", "every rank along tp", "over ranks", "over ranks along tp").Replace(text)
		}
		fmt.Fprintf(&b, `<td bgcolor="%s" color="%s" %s fixedsize="true" width="22" height="14"></td><td width="%d" align="left"><font point-size="%d">%s</font></td>`,
			c.fill, c.line, border, wide(fonts.Width(text, noteSize, false))+8, noteSize, text)
	}
	if n == 0 {
		b.WriteString("<td></td>")
	}
	return b.String() + "</tr></table>"
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
