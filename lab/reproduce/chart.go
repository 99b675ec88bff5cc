package reproduce

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/krait-ml/krait/visualize/svg"
)

const (
	publishedColour = "#b8bec6"
	simulatedColour = "#1f6fb2"
)

// chart draws a row for each claim: the published range above the simulated one. A range of one
// number is drawn as a mark.
func chart(title string, lines []*Line, log bool) []byte {
	const left, width, row, top = 330.0, 520.0, 34.0, 64.0
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
	axis := svg.Linear(min(0, all.lo), all.hi)
	if log {
		axis = svg.Logarithmic(all.lo, all.hi)
	}
	height := top + row*float64(len(rows)) + 30
	c := svg.Canvas{Size: 12}
	c.Text(12, 22, title, "font-size", 15, "font-weight", "bold")
	c.Rect(left, 34, 22, 9, publishedColour, "")
	c.Text(left+28, 43, "published")
	c.Rect(left+110, 34, 22, 9, simulatedColour, "")
	c.Text(left+138, 43, "simulated")
	at := func(v float64) float64 { return left + width*axis.At(v) }
	for _, tick := range axis.Ticks() {
		c.Path(fmt.Sprintf("M%.1f %gV%g", at(tick), top-8, height-24), "#e3e6ea")
		c.Text(at(tick), height-8, fmt.Sprintf("%.6g", tick), "text-anchor", "middle", "fill", "#555555")
	}
	bar := func(y float64, s span, colour, tip string) {
		from, to := at(s.lo), at(s.hi)
		c.Rect(min(from, to-3), y, max(to-from, 4), 9, colour, tip)
	}
	for i, x := range rows {
		y := top + row*float64(i)
		c.Text(left-10, y+13, label(x), "text-anchor", "end")
		bar(y-2, x.published, publishedColour, x.Published)
		bar(y+9, x.simulated, simulatedColour, x.Simulated)
	}
	return c.Document(left+width+40, height)
}

// label returns a claim's name without its section, which the title has.
func label(x *Line) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(x.Claim, "+"), ".")
	c := x.claim
	if len(c.Models) > 0 && !strings.Contains(rest, c.Models[0]) {
		rest += "." + strings.Join(c.Models, ",")
	}
	rest = gains.ReplaceAllString(rest, "$1 $4 GPUs over $2 $3$5")
	rest = strings.NewReplacer("over 1x", "over one", "over DP", "over replicas", ",", ", ", ".", " ", "_", " ").Replace(rest)
	return strings.Join(strings.Fields(rest), " ") + unitSuffix(c.Unit)
}

// gains are names of gains in throughput: a machine, what they are over, and GPUs beside models.
var gains = regexp.MustCompile(`^(\w+)\.vs_(1x|DP)\.(\D[^.]*\.)?(\d)(\..*)?$`)

func unitSuffix(unit string) string {
	if unit == "" || unit == "tokens" {
		return ""
	}
	return ", " + unit
}
