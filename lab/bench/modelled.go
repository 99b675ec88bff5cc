package bench

import (
	"math"

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

// What the model takes of GPUs of compute capability 8.0 to 9.0; assumptions, not measured.
const (
	// mmaShare is the share of the peak of tensor cores that tiles by mma.sync reach. 0.62 is the
	// most on 9.0, where wgmma is needed for more; tiles of Krait's have one stage, and a barrier
	// for each step.
	mmaShare = 0.45
	// specialSlots is how many instructions of f32 a multiprocessor could issue in the time of one
	// by the unit for special functions: 128 lanes a clock and 16.
	specialSlots = 8
	// ramp is the least seconds from the end of a launch in a graph to the first work of one that
	// depends on it.
	ramp = 2e-6
)

// model returns the time of a launch by a profile, and what it is spent on.
func model(p *cost.Profile, c *ptx.Counts, graphs bool) (seconds float64, bound string) {
	overhead := p.Overhead.Launch.Value
	if graphs {
		overhead = max(p.Overhead.GraphLaunch.Value, ramp)
	}
	moved, issue := float64(c.Loads.Distinct+c.Stores.Distinct)/bandwidth(p), 64/rateOf(p, "f32")
	few, wave := shares(c.Blocks, p.Multiprocessors.Value)
	issued, special := float64(c.Instrs)*issue/wave, float64(c.Special)*issue*specialSlots/wave
	tensor := (float64(c.Matrix)/tensorRate(p, c, "bf16") + float64(c.TF32)/tensorRate(p, c, "tf32")) / wave
	most := 0.0
	for _, x := range []struct {
		name  string
		takes float64
	}{
		{"memory", moved},
		{"issue", issued},
		{"special", special},
		{"tensor", tensor},
		{"blocks", max(moved, issued, special, tensor) / few},
		{"blocks", float64(c.Longest) * issue * p.Multiprocessors.Value},
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

// tensorRate returns the operations per second of tensor cores: what a library reaches, or tiles by
// mma.sync.
func tensorRate(p *cost.Profile, c *ptx.Counts, format string) float64 {
	if c.Blocks == 0 { // a product of cuBLAS
		return rateOf(p, format)
	}
	return p.Compute[format].Peak.Value * mmaShare
}

// shares returns how much of all multiprocessors blocks can use: of all they have, where blocks are
// fewer than these, and else of their arithmetic, as some have one block more than others. 0
// multiprocessors: nobody knows.
func shares(blocks int64, all float64) (few, wave float64) {
	switch n := float64(blocks); {
	case n == 0 || all == 0:
		return 1, 1
	case n < all:
		return n / all, 1
	default:
		return 1, n / all / math.Ceil(n/all)
	}
}
