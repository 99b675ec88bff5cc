package visualize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/emicklei/dot"
)

// repeat is a pattern of layers, and how often it comes.
type repeat struct{ first, len, times int }

// patternMax is the most layers that a row of a strip shows.
const patternMax = 16

// repeats writes a sequence with the fewest letters and rows, where a row costs as
// much as three letters.
func repeats(s []int) []repeat {
	const row = 3
	type way struct {
		cost int
		repeat
	}
	best := make([]way, len(s)+1)
	same := make([][]int, patternMax+1) // by period and place: how many letters come again after one
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

// strip is a table of layers: a row per pattern, with a letter per layer. Below it
// is a row for each kind that notes say something of.
func strip(names []string, kinds []kind, of map[string]int, notes map[int]dot.HTML) dot.HTML {
	sequence := make([]int, len(names))
	for i, name := range names {
		sequence[i] = of[name]
	}
	rows := repeats(sequence)
	columns := 0
	for _, r := range rows {
		columns = max(columns, r.len)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<table border="0" cellborder="1" cellspacing="1" cellpadding="3"><tr><td border="0" align="left" colspan="%d"><b>%s</b></td></tr>`, columns+1, plural(len(names), "layer"))
	for _, r := range rows {
		b.WriteString("<tr>")
		for _, k := range sequence[r.first : r.first+r.len] {
			fmt.Fprintf(&b, `<td bgcolor="%s"><b>%s</b></td>`, kinds[k].colour, kinds[k].letter)
		}
		times := ""
		if r.times > 1 {
			times = fmt.Sprintf("<b>× %d</b>  ", r.times)
		}
		where := span(names[r.first], names[r.first+r.len*r.times-1])
		fmt.Fprintf(&b, `<td border="0" align="left" colspan="%d">%s<font point-size="9" color="%s">%s</font></td></tr>`, columns+1-r.len, times, grey, escape(where))
	}
	for i, k := range kinds {
		if slices.Contains(sequence, i) && notes[i] != "" {
			fmt.Fprintf(&b, `<tr><td bgcolor="%s"><b>%s</b></td><td border="0" align="left" colspan="%d">%s</td></tr>`, k.colour, k.letter, columns, escape(k.who()))
			fmt.Fprintf(&b, `<tr><td border="0"></td><td border="0" align="left" colspan="%d">%s</td></tr>`, columns, notes[i])
		}
	}
	return dot.HTML(b.String() + "</table>")
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
