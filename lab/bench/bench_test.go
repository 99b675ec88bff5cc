package bench

import (
	"bytes"
	"context"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/quantile"
	"github.com/krait-ml/krait/passes"
)

func measure(t *testing.T, name string, s krait.Sharding, d *cuda.Device) *Result {
	t.Helper()
	var done, all int
	o := Options{Batch: 2, Prompt: 3, Chunk: 2, Tokens: 2, Repeat: 2, Progress: func(d, a int) { done, all = d, a }}
	options := krait.Options{Slots: 2, Sharding: s}
	if d != nil {
		if _, err := Watch(d, s.Ranks, &o); err != nil {
			t.Fatal(err)
		}
		options.Device = d
	}
	m, err := krait.Open(filepath.Join("../../testdata/golden", name), options)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, err := Measure(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.TTFT <= 0 || r.Step <= 0 || r.Decode <= 0 || r.Prefill <= 0 || !*r.Repeats || len(r.Logits) != 64 {
		t.Errorf("%+v", r)
	}
	if done != 9 || all != 9 { // 3 runs of a prompt and 2 tokens
		t.Errorf("%d of %d steps are told", done, all)
	}
	return r
}

// TestMeasure: on every device, with and without graphs, on one rank, and in CI on several.
// The counts are known; the times are not.
func TestMeasure(t *testing.T) {
	measure(t, "mamba-a", krait.Sharding{}, nil)
	graphs := measure(t, "mamba-a", krait.Sharding{}, &cuda.Device{Driver: sim.New(sim.Options{})})
	if graphs.Launches != 1 || graphs.Replays != 1 || graphs.Copies != 0 {
		t.Errorf("with graphs: %+v", graphs)
	}
	// A token takes all weights that products read, and the state twice. A_log is read at load only,
	// and -exp of it, as large, in every step.
	weights := int64(4 * 117632)
	state := int64(4 * 3 * 128 * (16 + 3))
	if want := weights + 2*2*state; graphs.Bytes != want {
		t.Errorf("%d bytes, want %d", graphs.Bytes, want)
	}
	plain := measure(t, "mamba-a", krait.Sharding{}, &cuda.Device{Driver: sim.New(sim.Options{}), NoGraphs: true})
	if plain.Launches < 10 || plain.Replays != 0 || plain.Copies == 0 {
		t.Errorf("without graphs: %+v", plain)
	}
	if plain.Logits != graphs.Logits {
		t.Error("graphs change the result")
	}
	if goldens.Few(t) {
		return
	}
	shared := measure(t, "mamba-a", krait.Sharding{Ranks: 2}, &cuda.Device{Driver: sim.New(sim.Options{})})
	apart := measure(t, "mamba-a", krait.Sharding{Ranks: 2}, &cuda.Device{Driver: sim.New(sim.Options{Devices: 2}), NoGraphs: true})
	if shared.Bytes <= apart.Bytes {
		t.Errorf("a GPU for two ranks moves %d bytes, one for each %d", shared.Bytes, apart.Bytes)
	}
}

func TestMeasureErrors(t *testing.T) {
	m, err := krait.Embedded(krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Batch: 1, Prompt: 1, Tokens: 1}, "repeat 0: all must be at least 1"},
		{Options{Batch: 2, Prompt: 1, Tokens: 1, Repeat: 1}, "slot"},
	} {
		if _, err := Measure(context.Background(), m, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.o, err, c.want)
		}
	}
	if _, err := m.Engine().Alloc(); err != nil { // of one
		t.Errorf("a failed measurement keeps slots: %v", err)
	}
}

// TestCount: a driver whose calls are counted is a driver.
func TestCount(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) driver.Driver {
		return Count(sim.New(sim.Options{Devices: 3, Memory: 32 << 20}), new(Counter))
	})
}

// computed counts the operations of a graph as it runs that are measured by themselves.
func computed(t *testing.T, g *graph.Graph, o passes.Options) map[string]int {
	t.Helper()
	fused, err := passes.Compile(g, o)
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]int{}
	for _, n := range fused.Nodes {
		if n.Op.Class == graph.Compute && !strings.HasSuffix(n.Op.Name, "experts") && !atLoad(n) {
			runs[n.Op.Name]++
		}
	}
	return runs
}

// TestKernels: every operation of the graphs of all families is measured, by default of two.
func TestKernels(t *testing.T) {
	names := []string{"mamba-a", "granite-hybrid", "mamba2-g4", "zamba", "zamba2", "jamba", "bamba", "falcon-h1", "falcon-mamba", "nemotron-h-moe"}
	if goldens.Few(t) {
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			_, g, err := checkpoint.Describe(filepath.Join("../../testdata/golden", name))
			if err != nil {
				t.Fatal(err)
			}
			d := sim.New(sim.Options{})
			list, err := Kernels(context.Background(), d, g, name, KernelOptions{Decode: []int{2}, Batch: 2, Prompt: 5})
			if err != nil {
				t.Fatal(err)
			}
			runs := computed(t, g, asOnGPU)
			runsOnCPU := computed(t, g, passes.Options{})
			o := KernelOptions{Decode: []int{2}, Batch: 2, Prompt: 5, Repeat: 1}
			onCPU, err := CPUKernels(context.Background(), "plain", Roofline{Threads: 2, Bytes: 1e9, FLOPs: 1e9, Read: func() float64 { return 2e9 }}, g, name, o)
			if err != nil {
				t.Fatal(err)
			}
			measured, counted := map[string]int{}, map[string]int{}
			for _, k := range list {
				if k.Phase == "decode 2" && k.Way != "sampled" {
					measured[k.Op] += k.Count
				}
			}
			for _, k := range onCPU {
				if k.Phase == "prompt 2x5" {
					counted[k.Op] += k.Count
				}
			}
			if !maps.Equal(runs, measured) || !maps.Equal(runsOnCPU, counted) || runs["conv1d_silu"] == 0 {
				t.Errorf("measured %v, on the CPU %v, where %v and %v run", measured, counted, runs, runsOnCPU)
			}
			for _, k := range append(list, onCPU...) {
				if k.Launch == "plain" && k.Bound == "memory" && math.Abs(k.Roofline/(1e6*float64(k.Bytes)/2e9)-1) > 1e-9 {
					t.Errorf("%s: not by the reads beside it: %+v", k.Op, k)
				}
				if k.Error != "" || k.Time <= 0 || k.Roofline <= 0 || k.Bytes <= 0 || k.Launch == "" {
					t.Errorf("%+v", k)
				}
			}
			if leaks := d.Leaks(); len(leaks) > 0 {
				t.Error(leaks)
			}
		})
	}
}

// TestRoofline: there is one, and what a model takes stands beside it: the arithmetic of
// prompts whatever the chunks, twice the parameters of products for each token.
func TestRoofline(t *testing.T) {
	f := MeasureRoofline(2)
	if again := f.Read(); f.Bytes <= 0 || f.FLOPs <= 0 || f.Threads != 2 || f.ISA == "" || again <= 0 {
		t.Errorf("%g bytes per second, %+v", again, f)
	}
	m, err := krait.Open("../../testdata/golden/mamba-a", krait.Options{Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := Options{Batch: 2, Prompt: 7, Tokens: 2, Repeat: 1, Bandwidth: 1e9, Rate: 1e9}
	whole, err := Measure(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	o.Chunk, o.Rate, o.Read = 3, 1e15, func() float64 { reads++; return 1e9 * float64(1+reads%2) }
	cut, err := Measure(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	if whole.FLOPs != cut.FLOPs || whole.FLOPs < 2*2*7*50000 || whole.FLOPs > 2*2*7*500000 {
		t.Errorf("prompts are %d operations, cut %d", whole.FLOPs, cut.FLOPs)
	}
	if want := (Spread{1e9, 1e9, 2e9}); reads != 2*2 || cut.Bandwidth != 1e9 || cut.Reads != want || math.Abs(1.5*cut.Share/(cut.Roofline/cut.Step)-1) > 1e-9 { // a pair of reads of 1 and 2
		t.Errorf("%d reads: %+v, want %v", reads, cut, want)
	}
	if whole.PromptRoofline != 1e3*float64(whole.FLOPs)/1e9 || whole.PromptShare != whole.PromptRoofline/whole.TTFT || whole.Roofline < 1e3*float64(whole.Bytes)/1e9 {
		t.Errorf("%+v", whole)
	}
}

// TestReport: what is saved is read, joined and written as tables.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	yes, no := true, false
	ours := File{Environment{Date: "2026-01-02", GPU: "1 × GPU", Libraries: map[string]string{"Go": "go1"}}, []Result{
		{Model: "m", Device: "cuda", Math: "f32", Graphs: true, Ranks: 1, Batch: 1, Prompt: 9, Decode: 300, Prefill: 50, Step: 3, TTFT: 20, Share: 0.5, Launches: 1, Host: 8, Repeats: &yes},
		{Model: "m", Device: "cuda", Math: "bf16", Ranks: 1, Batch: 1, Prompt: 9, Decode: 100, Prefill: 90, Repeats: &no},
	}, []Kernel{{Model: "m", Op: "matmul", Shapes: "f32[x:1|z:1]", Share: 0.9}}, nil, []TraceResult{
		{Trace: "t", Model: "m", InputTokens: 200, TTFT: Percentiles{8, 16, 32}, Output: 10},
		{Trace: "t", Model: "m", InputTokens: 200, TTFT: Percentiles{4, 4, 8}, Output: 30, Cache: 1 << 20, HitTokens: 50},
	}, []*MeterResult{
		{Model: "m", Math: "f32", Hardware: "h", Batch: 1, Prompt: 9, Phases: []MeterPhase{{Modelled: 0.002, Roofline: 0.0015}, {Modelled: 0.01, Roofline: 0.004}}},
		{Model: "m", Math: "f32", Hardware: "h", Batch: 2, Prompt: 9},
	}, nil, nil}
	theirs := File{Environment{Libraries: map[string]string{"torch": "2"}}, []Result{
		{By: "transformers", Model: "m", Batch: 1, Prompt: 9, Decode: 200, Prefill: 100},
		{By: "other", Model: "m", Note: "it failed"},
		{By: "torched", Model: "m", Batch: 1, Prompt: 9, Decode: 2},
	}, nil, []Pair{{Model: "m", Work: "decode 1", Ratio: 1.5, Krait: Side{Runs: []float64{3}, Spread: Spread{3, 3, 3}}, Peer: Side{Note: "it fell"}},
		{Model: "m", Work: "decode 1", By: "torched", Math: "bf16", Ratio: 2.5, Krait: Side{Runs: []float64{5, 4, 6}, Spread: Spread{5, 4, 6}}, Peer: Side{Runs: []float64{2, 1, 3}, Spread: Spread{2, 1, 3}}},
		{Model: "m", Work: "decode 2", By: "torched", Math: "f32", Krait: Side{Note: "it fell, too"}, Peer: Side{Note: "as said"}},
	}, nil, nil, nil, nil}
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	if err := ours.Save(a); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Save(b); err != nil {
		t.Fatal(err)
	}
	f, err := Read([]string{b, a})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	Report(&out, f)
	for _, want := range []string{"# Measured 2026-01-02", "1 × GPU", "- torch: 2", "- Go: go1", "| m | krait, cuda, f32 |", "no graphs", "| 50 % | yes |", "| NO |", "| m | krait, cuda, f32 | 1 | 9 | h | 20.0 | 10.0 | 2.00 | 20 % | 3 | 2 | 1.50 | 50 % |",
		"| m | transformers | 1 | 9 | 1.50 | 0.90 |", "m, other, batch 0: it failed", "| m | decode 1 | torched | 2.0 (1.0 to 3.0) | bf16 | 5.0 (4.0 to 6.0) | 2.50 |", "m, decode 2, Krait, f32: it fell, too", `f32[x:1\|z:1]`, "| 90 % |", "| m | decode 1 | failed | – | 3.0 (3.0 to 3.0) | – | 1.50 |", "m, decode 1, llama.cpp: it fell",
		"| t | m | 1.0 MB | 4 | 4 | 8 | 30.0 | 50 | 25 % | 0 | 0 |", "|  |  | ratio | 0.50 | 0.25 | 0.25 | 3.00 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if text := out.String(); strings.Contains(text, "| m | torched | 1 | 9 | 150") || strings.Count(text, "it fell, too") != 1 {
		t.Errorf("what was measured in turns is compared twice, or a note is:\n%s", text)
	}
	if _, err := Read(nil); err == nil {
		t.Error("nothing was read")
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct{ list, want []time.Duration }{{[]time.Duration{5}, []time.Duration{5}}, {[]time.Duration{9, 1, 5}, []time.Duration{5}}, {[]time.Duration{4, 1, 3, 2}, []time.Duration{2}}} {
		if got := quantile.Median(c.list); got != c.want[0] {
			t.Errorf("%v: %v", c.list, got)
		}
	}
}
