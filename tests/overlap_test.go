package tests

import (
	"fmt"
	"math"
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
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// overlapCases are a way to lie over ranks for each golden: by the first strategy for a third
// of them, else by another; with KRAIT_TEST_ALL by each.
func overlapCases(t *testing.T, try func(dir string, i int, g *graph.Graph, s krait.Sharding)) {
	for i, dir := range goldens.Folders(t, "..") {
		_, g, err := checkpoint.Describe(dir)
		if err != nil {
			t.Fatal(err)
		}
		for k, s := range passes.Strategies {
			sharding := krait.Sharding{Ranks: 2 + (i+k)%3, Strategy: s.Name}
			drawn := 0
			if i%3 != 0 {
				drawn = 1 + i%(len(passes.Strategies)-1)
			}
			if k != drawn && !goldens.All() {
				continue
			}
			if _, err := compileFor(g, sharding); err == nil { // it applies
				try(dir, i, g, sharding)
			}
		}
	}
}

// TestOverlapBits: the order of steps changes no bit, on the CPU and on simulated GPUs.
func TestOverlapBits(t *testing.T) {
	overlapCases(t, func(dir string, i int, _ *graph.Graph, s krait.Sharding) {
		for device, open := range map[string]func() exec.Device{
			"cpu":      func() exec.Device { return nil },
			"cuda-sim": func() exec.Device { return &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})} },
		} {
			if device == "cuda-sim" && (i%6 != 0 || s.Strategy != "channel") && !goldens.All() {
				continue
			}
			want := logitsOf(t, dir, krait.Options{Sharding: s, Device: open()})
			s.Overlap = true
			got := logitsOf(t, dir, krait.Options{Sharding: s, Device: open()})
			s.Overlap = false
			for at := range want {
				for j, x := range want[at] {
					if math.Float32bits(got[at][j]) != math.Float32bits(x) {
						t.Fatalf("%s on %s, %+v: logit %d after step %d is %g, and %g in the old order", dir, device, s, j, at, got[at][j], x)
					}
				}
			}
		}
	})
}

// TestOverlapHides: no step takes longer in the new order, and where x_proj's sum leaves
// something to do meanwhile it takes less.
func TestOverlapHides(t *testing.T) {
	overlapCases(t, func(dir string, i int, g *graph.Graph, s krait.Sharding) {
		hw := []string{"a6000-pcie", "a100-nvlink"}[i%2]
		for _, n := range []int{1, 300} {
			before := stepTime(t, g, s, hw, n)
			s.Overlap = true
			after := stepTime(t, g, s, hw, n)
			s.Overlap = false
			if after > before*(1+1e-12) {
				t.Errorf("%s on %s, %+v, %d tokens: %g s, and %g in the old order", dir, hw, s, n, after, before)
			}
			if s.Strategy == "channel" && strings.HasPrefix(goldens.Names[i], "mamba-") && after >= before {
				t.Errorf("%s on %s, %+v, %d tokens: %g s in either order", dir, hw, s, n, after)
			}
		}
	})
}

// stepTime is the time of a step of 2 sequences of n tokens.
func stepTime(t *testing.T, g *graph.Graph, s krait.Sharding, hw string, n int) float64 {
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
	span, err := m.Step(2, 0, n)
	if err != nil {
		t.Fatal(fmt.Errorf("%+v: %w", s, err))
	}
	return span.Seconds()
}
