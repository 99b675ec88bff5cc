package bench

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
)

// opsOf measures the operations of a golden on simulated GPUs.
func opsOf(t *testing.T, name string, ranks, gpus, prompt int) *OpRun {
	t.Helper()
	o := Options{Batch: 2, Prompt: prompt, Tokens: 2, Repeat: 1}
	d := &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus})}
	if _, err := Watch(d, ranks, &o); err != nil {
		t.Fatal(err)
	}
	var rec OpRecorder
	m, err := krait.Open(filepath.Join("../../testdata/golden", name), krait.Options{Slots: 2, Device: d, Sharding: krait.Sharding{Ranks: ranks}, Record: rec.Record})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, err := MeasureOps(context.Background(), m, &rec, profile(t), o)
	if err != nil {
		t.Fatal(err)
	}
	r.Model, r.Device, r.Math = name, "cuda-sim", "f32"
	return r
}

// TestOps: what is measured where it runs is what the meter counts, step for step, and the report
// has both in a row.
func TestOps(t *testing.T) {
	goldens.CI(t)
	r := opsOf(t, "mamba-a", 1, 1, 40)
	var told []int
	tell := func(done, all int) { told = append(told, done, all) }
	m, err := Meter(context.Background(), goldenGraph(t, "mamba-a", ""), MeterOptions{Batch: 2, Prompt: 40, Profile: profile(t), Progress: tell})
	if want := []int{0, 4, 1, 4, 2, 4, 3, 4}; !slices.Equal(told, want) {
		t.Errorf("progress %v, want %v", told, want)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Model = r.Model
	for i := range r.Phases {
		p := m.phase(r.Phases[i].Phase)
		if p == nil {
			t.Fatalf("the meter has no %s", r.Phases[i].Phase)
		}
		sum, counts := 0.0, map[string]int{}
		for _, s := range p.Steps {
			sum += s.Modelled
			counts[s.Op]++
			if s.Name == "" || s.Launches < 1 || s.Bytes <= 0 || s.Roofline <= 0 || s.Roofline > 2*s.Modelled {
				t.Errorf("%s: %+v", p.Phase, s)
			}
		}
		if sum < 0.999*p.Modelled || sum > 1.001*p.Modelled {
			t.Errorf("%s: steps are modelled at %g s, the whole at %g", p.Phase, sum, p.Modelled)
		}
		for _, o := range r.Phases[i].Ops {
			if o.Count != counts[o.Op] || o.Time <= 0 {
				t.Errorf("%s: %+v, counted %d", p.Phase, o, counts[o.Op])
			}
			delete(counts, o.Op)
		}
		if len(counts) > 0 {
			t.Errorf("%s: not measured: %v", p.Phase, counts)
		}
	}
	var out bytes.Buffer
	Report(&out, &File{Ops: []*OpRun{r}, Metered: []*MeterResult{m}, Kernels: []Kernel{
		{Model: "mamba-a", Phase: "decode 2", Prompt: 40, Op: "choose", Name: "tokens", Way: "greedy", Time: 1e6},
		{Model: "mamba-a", Phase: "decode 2", Prompt: 41, Op: "choose", Name: "tokens", Way: "greedy", Time: 1e6},
	}})
	chosen, _ := m.phase("decode 2").op("choose")
	for _, want := range []string{"| mamba-a | krait, cuda-sim, f32 | decode 2 | selective_scan_projected | 3 | ", "| 0 % | " + number(chosen) + " | " + ratio(1e6, chosen) + " |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "| – | – |\n"); n != 1 { // the kernel of another prompt
		t.Errorf("%d rows have nothing modelled:\n%s", n, out.String())
	}
}

// TestOpsBetween: collectives between GPUs are modelled by links; on one GPU they are kernels, and
// are not.
func TestOpsBetween(t *testing.T) {
	goldens.CI(t)
	for gpus, hardware := range map[int]string{1: "", 2: "h100-nvlink"} {
		r := opsOf(t, "mamba2-g4", 2, gpus, 3)
		if r.Hardware != hardware {
			t.Errorf("%d GPUs: modelled for %q", gpus, r.Hardware)
		}
		for i := range r.Phases {
			counts := map[string]int{}
			for _, o := range r.Phases[i].Ops {
				op, _ := graph.Lookup(o.Op)
				between := op.Class == graph.Collective
				if between {
					counts[o.Op] = o.Count
				}
				if (o.Modelled > 0) != (between && gpus == 2) || o.Time <= 0 || o.Bytes <= 0 {
					t.Errorf("%d GPUs, %s: %+v", gpus, r.Phases[i].Phase, o)
				}
			}
			// A sum after the embedding, two in each of three layers; and the logits' shards.
			if counts["all_reduce"] != 7 || counts["all_gather"] != 1 || len(counts) != 2 {
				t.Errorf("%d GPUs, %s: %v", gpus, r.Phases[i].Phase, counts)
			}
		}
	}
}

// TestSumOps: the longest rank counts, and of a collective the rank that came last.
func TestSumOps(t *testing.T) {
	list := []exec.Event{
		{Rank: 0, Kind: lowering.Launch, Op: "add", Name: "a", Start: 0, End: 2e-6},
		{Rank: 0, Kind: lowering.Launch, Op: "add", Name: "b", Start: 2e-6, End: 3e-6},
		{Rank: 0, Kind: lowering.Wait, Op: "add", Name: "b", Start: 3e-6, End: 9e-6},
		{Rank: 0, Kind: lowering.Collective, Op: "all_reduce", Name: "r", Start: 3e-6, End: 9e-6, Bytes: 8},
		{Rank: 0, Kind: lowering.Collective, Op: "all_reduce", Name: "r", Start: 9e-6, End: 10e-6, Bytes: 8},
		{Rank: 1, Kind: lowering.Launch, Op: "add", Name: "a", Start: 0, End: 5e-6},
		{Rank: 1, Kind: lowering.Launch, Op: "add", Name: "b", Start: 5e-6, End: 7e-6},
		{Rank: 1, Kind: lowering.Collective, Op: "all_reduce", Name: "r", Start: 7e-6, End: 9e-6, Bytes: 8},
		{Rank: 1, Kind: lowering.Collective, Op: "all_reduce", Name: "r", Start: 9e-6, End: 10e-6, Bytes: 8},
	}
	got := sumOps(list)
	near := func(a, b float64) bool { return a > b-1e-6 && a < b+1e-6 }
	if a, r := got["add"], got["all_reduce"]; len(got) != 2 || a.Count != 2 || !near(a.Time, 7) || r.Count != 2 || !near(r.Time, 3) || r.Bytes != 16 {
		t.Errorf("%+v", got)
	}
}
