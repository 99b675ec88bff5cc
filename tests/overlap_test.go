package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// overlapCases are ways to lie over ranks, each strategy and number of ranks for some golden.
func overlapCases(t *testing.T, try func(dir string, i int, g *graph.Graph, s krait.Sharding)) {
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	for _, c := range covering.Each(t, []int{len(folders), len(passes.Strategies)}, 3) {
		dir, sharding := folders[c[0]], krait.Sharding{Ranks: 2 + c[2], Strategy: passes.Strategies[c[1]].Name}
		_, g, err := checkpoint.Describe(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := compileFor(g, sharding); err == nil { // it applies
			try(dir, c[0], g, sharding)
		}
	}
}

// TestOverlapBits: the order of steps changes no bit, on the CPU and on simulated GPUs.
func TestOverlapBits(t *testing.T) {
	goldens.CI(t)
	compare := func(dir, device string, s krait.Sharding) {
		open := func() exec.Device {
			if device == "cpu" {
				return nil
			}
			return &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}
		}
		want := logitsOf(t, dir, krait.Options{Sharding: s, Device: open()})
		s.Overlap = true
		got := logitsOf(t, dir, krait.Options{Sharding: s, Device: open()})
		for at := range want {
			for j, x := range want[at] {
				if math.Float32bits(got[at][j]) != math.Float32bits(x) {
					t.Fatalf("%s on %s, %+v: logit %d after step %d is %g, and %g in the old order", dir, device, s, j, at, got[at][j], x)
				}
			}
		}
	}
	overlapCases(t, func(dir string, _ int, _ *graph.Graph, s krait.Sharding) {
		compare(dir, "cpu", s)
		if goldens.All() {
			compare(dir, "cuda-sim", s)
		}
	})
	if !goldens.Few(t) {
		compare(shallow(t, "bamba", 2), "cuda-sim", krait.Sharding{Ranks: 2})
	}
	compare(shallow(t, "mamba-a", 1), "cuda-sim", krait.Sharding{Ranks: 3})
}

// TestOverlapHides: no step takes longer in the new order, and where x_proj's sum leaves
// something to do meanwhile it takes less.
func TestOverlapHides(t *testing.T) {
	goldens.CI(t)
	hides := func(dir string, i int, g *graph.Graph, s krait.Sharding) {
		hw, tokens := []string{"a6000-pcie", "a100-nvlink"}[i%2], []int{1, 300}
		old := stepTimes(t, g, s, hw, tokens)
		s.Overlap = true
		for k, after := range stepTimes(t, g, s, hw, tokens) {
			n, before := tokens[k], old[k]
			if after > before*(1+1e-12) {
				t.Errorf("%s on %s, %+v, %d tokens: %g s, and %g in the old order", dir, hw, s, n, after, before)
			}
			if s.Strategy == "channel" && strings.HasPrefix(filepath.Base(dir), "mamba-") && after >= before {
				t.Errorf("%s on %s, %+v, %d tokens: %g s in either order", dir, hw, s, n, after)
			}
		}
	}
	overlapCases(t, hides)
	const dir = "../testdata/golden/mamba-a"
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	hides(dir, 0, g, krait.Sharding{Ranks: 2, Strategy: "channel"})
}

// stepTimes are the seconds that steps of 2 sequences of some tokens take.
func stepTimes(t *testing.T, g *graph.Graph, s krait.Sharding, hw string, tokens []int) (times []float64) {
	t.Helper()
	profile, err := cost.Find(hw)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := compileFor(g, s)
	if err != nil {
		t.Fatal(err)
	}
	list, err := lowering.Lower(compiled)
	if err != nil {
		t.Fatal(err)
	}
	m, err := simulate.New(list, &virtual.Device{Profile: profile, Unlimited: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range tokens {
		span, err := m.Step(2, 0, n)
		if err != nil {
			t.Fatal(fmt.Errorf("%+v: %w", s, err))
		}
		times = append(times, span.Seconds())
	}
	return times
}
