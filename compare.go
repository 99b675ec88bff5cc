package krait

import (
	"time"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// Compared is what one strategy takes for a model.
type Compared struct {
	Strategy *passes.Strategy
	Plan     *lowering.Plan // nil where the strategy does not apply
	Err      error          // why it does not
}

// Compare plans a model's graph by every strategy that comes with Krait, on the
// ranks and with the payloads of s. Which of them pays depends on the batch and on
// the links: see [Link].
func Compare(g *graph.Graph, s Sharding) []Compared {
	var out []Compared
	for _, strategy := range passes.Strategies {
		s.Strategy, s.Place = strategy.Name, ""
		c := Compared{Strategy: strategy}
		c.Plan, c.Err = plan(g, s)
		out = append(out, c)
	}
	return out
}

func plan(g *graph.Graph, s Sharding) (*lowering.Plan, error) {
	h, err := Compile(g, s)
	if err != nil {
		return nil, err
	}
	schedules, err := lowering.Lower(h)
	if err != nil {
		return nil, err
	}
	return lowering.NewPlan(schedules)
}

// Link is what connects ranks: what a collective costs whatever it carries, and
// how many bytes per second a rank sends.
type Link struct {
	Latency   time.Duration
	Bandwidth float64
}

// Time is how long the collectives of a step take, one after another.
func (l Link) Time(p *lowering.Plan, z graph.Sizes) time.Duration {
	return time.Duration(len(p.Collectives))*l.Latency + time.Duration(float64(p.Sent(z))/l.Bandwidth*1e9)
}
