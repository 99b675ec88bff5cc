package visualize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/emicklei/dot"
)

// repeat is a pattern of layers, with its number of repetitions.
type repeat struct{ first, len, times int }

// patternMax is the most layers that a row of a strip shows.
const patternMax = 16

// repeats splits a sequence into patterns with the fewest letters and rows, where a row costs three
// letters.
func repeats(s []int) []repeat {
	const row = 3
	type way struct {
		cost int
		repeat
	}
	best := make([]way, len(s)+1)
	same := make([][]int, patternMax+1) // by period and index: number of letters that repeat after one period
	for p := range same {
		same[p] = make([]int, len(s)+1)
	}
	for i := len(s) - 1; i >= 0; i-- {
		for p := 1; p <= patternMax && i+p <= len(s); p++ {
			times := 1
			if i+p < len(s) && s[i] == s[i+p] {
				same[p][i] = same[p][i+1] + 1
				times += same[p][i] / p
			}
			for _, n := range []int{times, 1} {
				cost := p + row + best[i+p*n].cost
				if best[i].len == 0 || cost < best[i].cost {
					best[i] = way{cost, repeat{i, p, n}}
				}
			}
		}
	}
	var out []repeat
	for i := 0; i < len(s); i += best[i].len * best[i].times {
		out = append(out, best[i].repeat)
	}
	return out
}

// strip returns a table of layers: a row per pattern, with a letter per layer in cells of one size,
// and a row per kind that has a note.
func strip(names []string, kinds []kind, of map[string]int, notes map[int]*label) dot.HTML {
	sequence := make([]int, len(names))
	for i, name := range names {
		sequence[i] = of[name]
	}
	rows := []stripRow{{text: oneLine(plural(len(names), "layer"), "", headSize, true)}}
	for _, r := range repeats(sequence) {
		row := stripRow{text: &label{}}
		for _, k := range sequence[r.first : r.first+r.len] {
			row.badges = append(row.badges, kinds[k].badge())
		}
		if r.times > 1 {
			row.times = oneLine(fmt.Sprintf("× %d", r.times), "", headSize, true)
		}
		row.text.line(span(names[r.first], names[r.first+r.len*r.times-1]), grey, noteSize, false)
		rows = append(rows, row)
	}
	for i := range kinds {
		if k := &kinds[i]; slices.Contains(sequence, i) && notes[i] != nil {
			rows = append(rows, stripRow{badges: []string{k.badge()}, text: k.about()}, stripRow{text: notes[i]})
		}
	}
	width := 0
	for i := range rows {
		width = max(width, rows[i].width())
	}
	var b strings.Builder
	b.WriteString(`<table border="0" cellborder="0" cellspacing="0" cellpadding="1">`)
	for i := range rows {
		rows[i].write(&b, width)
	}
	return dot.HTML(b.String() + "</table>")
}

// stripRow is a table per row. All have one width, since Graphviz would stretch narrower ones.
type stripRow struct {
	badges []string
	times  *label // nil: none
	text   *label
}

const rowSpace, rowPadding = 2, 1

func (r *stripRow) width() int {
	width := rowSpace + len(r.badges)*(badgeWidth+rowSpace) + r.text.outer() + rowSpace
	if r.times != nil {
		width += r.times.outer() + rowSpace
	}
	return width
}

func (r *stripRow) write(b *strings.Builder, width int) {
	r.text.width += float64(width - r.width())
	fmt.Fprintf(b, `<tr><td align="left"><table border="0" cellborder="0" cellspacing="%d" cellpadding="%d"><tr>%s`, rowSpace, rowPadding, strings.Join(r.badges, ""))
	for _, l := range []*label{r.times, r.text} {
		if l != nil {
			fmt.Fprintf(b, "<td>%s</td>", l.html())
		}
	}
	b.WriteString("</tr></table></td></tr>")
}

// outer returns the width of a label's table in a cell.
func (l *label) outer() int { return wide(l.width) + 2*labelPadding + 2*rowPadding }

// oneLine returns a label of one line.
func oneLine(text, colour string, size int, bold bool) *label {
	l := &label{}
	l.line(text, colour, size, bold)
	return l
}

// span writes layers.3 to 7.
func span(first, last string) string {
	if first == last {
		return first
	}
	return first + " to " + strings.TrimPrefix(last, "layers.")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
