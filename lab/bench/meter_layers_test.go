package bench

import (
	"context"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels/cuda"
)

// TestMeterLayers: layers whose scans norm dt, B and C, and those with a gated MLP, launch no more
// than this. The limits are of a token and of prompts, by the first of layers that are alike. By
// default one model is metered.
func TestMeterLayers(t *testing.T) {
	few := goldens.Few(t)
	for name, limits := range map[string]map[string][2]int{
		"falcon-mamba": {"layers.0": {5, 10}},
		"jamba":        {"layers.0": {7, 14}, "layers.2": {9, 15}}, // with an MLP; with attention and an MLP, behind a layer of experts that adds by itself
		"bamba":        {"layers.0": {6, 12}, "layers.1": {11, 15}},
	} {
		if few && name != "jamba" {
			continue
		}
		g := goldenGraph(t, name, "bf16")
		for _, batch := range []int{1, 3} {
			if batch > 1 && !goldens.All() {
				continue // by kernels of more rows, as many
			}
			m, err := Meter(context.Background(), g, MeterOptions{Batch: batch, Prompt: 67, Math: cuda.BF16, Profile: profile(t), cheap: 1})
			if err != nil {
				t.Fatal(err)
			}
			for i := range m.Phases {
				found := 0
				for _, l := range m.Phases[i].Layers {
					most, ok := limits[l.First]
					if ok && l.Launches > most[i] {
						t.Errorf("%s, %s: %d launches in %s, where %d are allowed: %v", name, m.Phases[i].Phase, l.Launches, l.First, most[i], l.Kernels)
					}
					if ok {
						found++
					}
				}
				if found != len(limits) {
					t.Errorf("%s, %s: %d of %d kinds of layers were found", name, m.Phases[i].Phase, found, len(limits))
				}
			}
		}
	}
}
