package bench

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/internal/choices"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	cudakernels "github.com/krait-ml/krait/kernels/cuda"
)

// TestModel: what a launch is bound by, worked out by hand.
func TestModel(t *testing.T) {
	p := &cost.Profile{Memory: cost.Memory{Bandwidth: cost.Figure{Value: 1e6}, Achieved: cost.Figure{Value: 1}}, Compute: map[string]cost.Compute{}}
	for _, f := range []string{"f32", "bf16", "tf32"} {
		p.Compute[f] = cost.Compute{Peak: cost.Figure{Value: 64e6}, Achieved: cost.Figure{Value: 1}}
	}
	p.Overhead.Launch.Value, p.Overhead.GraphLaunch.Value = 0.5, 0.25
	const million = 1000000
	for _, c := range []struct {
		name    string
		blocks  int64
		done    sim.Done
		seconds float64
		bound   string
	}{
		{"nothing", 100, sim.Done{Counts: ptx.Counts{}}, 0.25, "launch"},
		{"memory", 10, sim.Done{Counts: ptx.Counts{Loads: ptx.Access{Distinct: million}, Stores: ptx.Access{Distinct: million}}}, 2.25, "memory"},
		{"half of the multiprocessors", 5, sim.Done{Counts: ptx.Counts{Loads: ptx.Access{Distinct: million}}}, 2.25, "blocks"},
		{"memory does not wait for the last wave", 11, sim.Done{Counts: ptx.Counts{Loads: ptx.Access{Distinct: million}}}, 1.25, "memory"},
		{"tensor cores by mma.sync", 10, sim.Done{Counts: ptx.Counts{Matrix: 45 * 64 * million}}, 100.25, "tensor"},
		{"tensor cores of one", 1, sim.Done{Counts: ptx.Counts{Matrix: 45 * 64 * million}}, 1000.25, "blocks"},
		{"a last wave of half the blocks", 15, sim.Done{Counts: ptx.Counts{TF32: 45 * 64 * million}}, 100*20/15. + 0.25, "tensor"},
		{"even blocks", 20, sim.Done{Counts: ptx.Counts{Instrs: 2 * million, Longest: million / 10}}, 2.25, "issue"},
		{"one block more than even", 21, sim.Done{Counts: ptx.Counts{Instrs: 21 * million, Longest: million}}, 30.25, "issue"},
		{"a long one", 20, sim.Done{Counts: ptx.Counts{Instrs: 2 * million, Longest: million / 2}}, 5.25, "blocks"},
		{"special functions", 20, sim.Done{Counts: ptx.Counts{Instrs: 2 * million, Special: million, Longest: million / 10}}, 8.25, "special"},
		{"two rounds of few warps", 80, sim.Done{Registers: 255, Block: [3]int{64, 1, 1}, Counts: ptx.Counts{Instrs: 16 * million, Longest: million / 10}}, 48.25, "latency"},
		{"a product of a library", 0, sim.Done{Counts: ptx.Counts{Loads: ptx.Access{Distinct: million}, Matrix: 128 * million}}, 2.25, "tensor"},
	} {
		c.done.Blocks = c.blocks
		p.Multiprocessors.Value = 10
		if got, bound := model(p, &c.done, true); math.Abs(got-c.seconds) > 1e-9 || bound != c.bound {
			t.Errorf("%s: %g s by %s, want %g by %s", c.name, got, bound, c.seconds, c.bound)
		}
		p.Multiprocessors.Value = 0
		if _, bound := model(p, &c.done, true); bound == "blocks" {
			t.Errorf("%s: bound by %s for an unknown number of multiprocessors", c.name, bound)
		}
	}
}

// TestFilled: what waves fill is weighted by time, without what libraries launch.
func TestFilled(t *testing.T) {
	x := tally{MeterPhase: &MeterPhase{}}
	for _, l := range []struct {
		blocks int64
		took   float64
	}{{5, 1}, {10, 2}, {15, 4}, {0, 100}} {
		x.fill(&sim.Done{Counts: ptx.Counts{Blocks: l.blocks}}, l.took, 10)
	}
	if want := 1*0.5 + 2*1 + 4*0.75; x.Filled != want || x.known != 7 {
		t.Errorf("%g of %g, want %g of 7", x.Filled, x.known, want)
	}
}

// chosen is what the launches count that choose a token of a row.
func chosen(t *testing.T, n int, how kernels.Choice) (list []ptx.Counts) {
	t.Helper()
	row, r := choices.Case{Logits: make([]float32, n), Choice: how, Seen: []int{1, n / 2}}, rand.New(rand.NewPCG(1, 1))
	for i := range row.Logits {
		row.Logits[i] = float32(3 * r.NormFloat64())
	}
	c, mem := choices.Call(row), ptx.NewMemory(1<<28)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(x *kernels.Tensor) cudakernels.Tensor {
		var data []byte
		for _, v := range x.F32 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		for _, v := range x.I32 {
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		}
		at, err := mem.Alloc(int64(len(data)))
		must(err)
		must(mem.Write(at, data))
		return cudakernels.Tensor{Tensor: *x, Ptr: at}
	}
	on := &cudakernels.Call{Results: []cudakernels.Tensor{put(&c.Results[0])}}
	for i := range c.Args {
		on.Args = append(on.Args, put(&c.Args[i]))
	}
	k, err := cudakernels.Kernels["choose"], error(nil)
	on.Scratch, err = mem.Alloc(k.Scratch(on))
	must(err)
	launches, err := k.Launches(on)
	must(err)
	for _, l := range launches {
		_, text := l.Source()
		m, err := ptx.Parse(l.Module, string(text))
		must(err)
		e, _ := m.Entry(l.Function)
		x := ptx.Launch{Shared: int(l.Shared), Params: l.Params, Meter: &ptx.Meter{}}
		for i := range l.Grid {
			x.Grid[i], x.Block[i] = int(l.Grid[i]), int(l.Block[i])
		}
		must(e.Run(context.Background(), mem, x))
		list = append(list, x.Meter.Counts)
	}
	return list
}

// TestChooseLimits: a token is chosen in less than 12 µs, as modelled for a graph on H100.
// A faster kernel should lower the limits.
func TestChooseLimits(t *testing.T) {
	goldens.CI(t)
	for _, c := range []struct {
		n     int
		how   kernels.Choice
		limit float64
	}{
		{50280, kernels.Choice{}, 6.7e-6},
		{128256, kernels.Choice{}, 6.8e-6},
		{262144, kernels.Choice{}, 6.9e-6},
		{50280, kernels.Choice{Temperature: 0.8, TopK: 50, TopP: 0.9, Penalty: 1.1, Uniform: 0.7}, 9.6e-6},
		{128256, kernels.Choice{Temperature: 0.8, TopK: 50, TopP: 0.9, Penalty: 1.1, Uniform: 0.7}, 9.8e-6},
		{262144, kernels.Choice{Temperature: 0.8, TopK: 50, TopP: 0.9, Penalty: 1.1, Uniform: 0.7}, 10.6e-6},
		{262144, kernels.Choice{Temperature: 2, TopP: 0.95, Uniform: 0.7}, 11.6e-6},
	} {
		if c.n != 50280 && !goldens.All() {
			continue // the same launches, of more blocks
		}
		list, sum := chosen(t, c.n, c.how), 0.0
		for i := range list {
			takes, bound := model(profile(t), &sim.Done{Counts: list[i]}, true)
			sum += takes
			t.Logf("%d tokens, %+v, launch %d of %d blocks: %.2f µs, bound by %s; %d instructions, %d of a block, %d bytes", c.n, c.how, i, list[i].Blocks, 1e6*takes, bound,
				list[i].Instrs, list[i].Longest, list[i].Loads.Distinct+list[i].Stores.Distinct)
		}
		if sum > c.limit || len(list) > 3 {
			t.Errorf("%d tokens, %+v: %d launches, %.2f µs; %.2f µs are allowed", c.n, c.how, len(list), 1e6*sum, 1e6*c.limit)
		} else {
			t.Logf("%.2f µs", 1e6*sum)
		}
	}
}
