package bench

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestKernelsAsRun: what is measured by itself is what a step launches, as the meter counts
// it, and as often.
func TestKernelsAsRun(t *testing.T) {
	for _, name := range []string{"mamba-a", "mamba2-g4", "falcon-mamba"} {
		if name == "mamba-a" && !goldens.All() {
			continue // falcon-mamba has all of its kernels
		}
		g := goldenGraph(t, name, "bf16")
		list, err := Kernels(context.Background(), sim.New(sim.Options{Capability: [2]int{9, 0}}), g, name, KernelOptions{Decode: []int{2}, Batch: 2, Prompt: 40})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []phase{{"decode 2", 2, 1, 40}, {"prompt 2x40", 2, 40, 0}} {
			measured, runs := map[string]int{}, map[string]int{}
			for _, k := range list {
				if k.Phase != p.name || k.Way != "" && k.Way != "f32" && k.Way != "greedy" {
					continue
				}
				for _, kernel := range strings.Fields(k.Launch) {
					measured[kernel] += k.Count
				}
			}
			for _, d := range done(t, g, MeterOptions{Batch: 2, Prompt: 40, Profile: profile(t)}, p) {
				if d.Kernel {
					runs[d.Name]++
				}
			}
			if !maps.Equal(measured, runs) {
				t.Errorf("%s, %s: measured %v, where %v runs", name, p.name, measured, runs)
			}
		}
	}
}

// TestChoices: rows that say how a token is chosen are such as may be.
func TestChoices(t *testing.T) {
	for _, draw := range []bool{false, true} {
		f := choiceRows(draw)
		for range 3 {
			var row []float32
			for range len(graph.ChoiceType().Dims[1].Fields) {
				row = append(row, f(nil))
			}
			if drawn := row[graph.ChoiceTemperature] > 0; drawn != draw || row[graph.ChoiceUniform] >= 1 || row[graph.ChoiceTopP] > 1 {
				t.Errorf("%v: %v", draw, row)
			}
		}
	}
}
