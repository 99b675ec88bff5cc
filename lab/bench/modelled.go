package bench

import (
	"math"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/cuda/sim"
)

// bandwidth returns the achieved bytes per second of memory.
func bandwidth(p *cost.Profile) float64 { return p.Memory.Bandwidth.Value * p.Memory.Achieved.Value }

// rateOf returns the achieved operations per second of a format.
func rateOf(p *cost.Profile, format string) float64 {
	c := p.Compute[format]
	return c.Peak.Value * c.Achieved.Value
}

// Assumptions about GPUs of compute capability 8.0 to 9.0, not measured.
const (
	// specialSlots is the f32 instructions in the time of one special function: 128 lanes against 16.
	specialSlots = 8
	// ramp is the least seconds from the end of a launch in a graph to the start of a dependent one.
	ramp = 2e-6
	// waitCycles is the least cycles between two instructions of a warp: a scan of few warps took 6.3
	// on an H100 (docs/benchmarks/gpu.md, Scans).
	waitCycles = 6
	// smSchedulers issue an instruction each cycle, each of its own warps.
	smSchedulers = 4
)

// model returns the time of a launch by a profile, and its bottleneck.
func model(p *cost.Profile, d *sim.Done, graphs bool) (seconds float64, bound string) {
	c := &d.Counts
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
		{"latency", chain(d, p.Multiprocessors.Value) * waitCycles * issue * smSchedulers * p.Multiprocessors.Value},
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

// chain returns the instructions of a warp, times how often all multiprocessors are filled with
// blocks; 0: unknown.
func chain(d *sim.Done, multiprocessors float64) float64 {
	resident := float64(residentBlocks(d)) * multiprocessors
	if resident == 0 || d.Blocks == 0 {
		return 0
	}
	return float64(d.Instrs) / float64(d.Blocks) / float64(warpsOf(d)) * math.Ceil(float64(d.Blocks)/resident)
}

// tensorRate returns the operations per second of tensor cores, by a library or by mma.sync tiles.
func tensorRate(p *cost.Profile, c *ptx.Counts, format string) float64 {
	if c.Blocks == 0 { // a product of cuBLAS
		return rateOf(p, format)
	}
	return p.Compute[format].Peak.Value * cost.TileShare
}

// shares returns the shares of the GPU that blocks can use: few of everything, if there are fewer
// blocks than multiprocessors, and wave of the arithmetic, if the last wave is partial. all is the
// number of multiprocessors; 0: unknown.
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
