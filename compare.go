package krait

import (
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/passes"
)

// Compared is what one strategy takes for a model.
type Compared struct {
	Strategy *passes.Strategy
	Model    *simulate.Model // its plan, and its times on the device; nil where the strategy does not apply
	Err      error           // why it does not
}

// Compare plans a model's graph by every strategy that comes with Krait, on the
// ranks and with the payloads of s. Which of them pays depends on the batch and on
// the hardware.
func Compare(g *graph.Graph, s Sharding, d *virtual.Device) []Compared {
	var out []Compared
	for _, strategy := range passes.Strategies {
		s.Strategy, s.Place = strategy.Name, ""
		c := Compared{Strategy: strategy}
		c.Model, c.Err = timed(g, s, d)
		out = append(out, c)
	}
	return out
}

func timed(g *graph.Graph, s Sharding, d *virtual.Device) (*simulate.Model, error) {
	o, err := s.Options()
	if err != nil {
		return nil, err
	}
	return simulate.Compile(g, o, d)
}
