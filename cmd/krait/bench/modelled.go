package bench

import (
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/ptx"
)

// bandwidth is the bytes per second that memory gives.
func bandwidth(p *cost.Profile) float64 { return p.Memory.Bandwidth.Value * p.Memory.Achieved.Value }

// rateOf is the operations per second of a format.
func rateOf(p *cost.Profile, format string) float64 {
	c := p.Compute[format]
	return c.Peak.Value * c.Achieved.Value
}

// model is the time of a launch by a profile, and what it is spent on.
func model(p *cost.Profile, c *ptx.Counts, graphs bool) (seconds float64, bound string) {
	overhead := p.Overhead.Launch.Value
	if graphs {
		overhead = p.Overhead.GraphLaunch.Value
	}
	moved, issue := float64(c.Loads.Distinct+c.Stores.Distinct)/bandwidth(p), 64/rateOf(p, "f32")
	tensor := float64(c.Matrix)/rateOf(p, "bf16") + float64(c.TF32)/rateOf(p, "tf32")
	// A block is on one multiprocessor: what there are too few blocks for, or one block has
	// more of than others, the others do not help with.
	all := p.Multiprocessors.Value
	share := 1.0
	if c.Blocks > 0 && float64(c.Blocks) < all {
		share = float64(c.Blocks) / all
	}
	most := 0.0
	for _, x := range []struct {
		name  string
		takes float64
	}{
		{"memory", moved},
		{"issue", float64(c.Instrs) * issue},
		{"tensor", tensor},
		{"blocks", max(moved, tensor) / share},
		{"blocks", float64(c.Longest) * issue * all},
	} {
		if x.takes > most {
			most, bound = x.takes, x.name
		}
	}
	if overhead > most {
		bound = "launch"
	}
	return overhead + most, bound
}
