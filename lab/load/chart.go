package load

import (
	"fmt"

	"github.com/krait-ml/krait/visualize/svg"
)

// SVG draws a point for each load that has both: its throughput, per rank if the ranks are known,
// over its tokens per second per user. The same report gives the same text.
func (r *Report) SVG() []byte {
	c := svg.Chart{Title: r.Model, X: "tokens per second per user", Y: "tokens per second per rank"}
	throughput := func(x *Result) float64 { return x.PerRank }
	switch r.Ranks {
	case 0:
		throughput, c.Y = func(x *Result) float64 { return x.TokensPerSecond }, "tokens per second"
	case 1:
		c.Title += ", 1 rank"
	default:
		c.Title += fmt.Sprintf(", %d ranks", r.Ranks)
	}
	line := svg.Line{Colour: "#1f5fa8"}
	for i := range r.Loads {
		if x := &r.Loads[i]; x.PerUser != nil {
			line.Points = append(line.Points, svg.Point{X: *x.PerUser, Y: throughput(x), Name: x.Name()})
		}
	}
	c.Lines = []svg.Line{line}
	return c.SVG()
}
