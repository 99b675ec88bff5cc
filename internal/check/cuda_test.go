package check

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/cuda/sim"
)

// cudaTolerances are wider where the reference's own values inside the model are
// 2e-4 from a float64 forward pass.
var cudaTolerances = map[string]float64{"zamba2": 4e-4}

// TestCUDA: every golden checkpoint passes on simulated GPUs, on 1, 2 and 4 ranks
// that share one or have one each.
func TestCUDA(t *testing.T) {
	configs, err := filepath.Glob("../../testdata/golden/*/config.json")
	if err != nil || len(configs) == 0 {
		t.Fatal("no goldens", err)
	}
	for i, config := range configs {
		dir := filepath.Dir(config)
		for _, ranks := range []int{1, 2, 4} {
			gpus := 1
			if i%2 == ranks/2%2 {
				gpus = ranks
			}
			t.Run(fmt.Sprintf("%s/tp=%d/%d GPUs", filepath.Base(dir), ranks, gpus), func(t *testing.T) {
				t.Parallel()
				o := Options{Tolerance: 1e-4, Sharding: krait.Sharding{Ranks: ranks}, Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, Seed: uint64(i)})}}
				if ranks == 1 {
					o.Chunks = []int{3}
				}
				if x, ok := cudaTolerances[filepath.Base(dir)]; ok {
					o.Tolerance = x
				}
				ok, err := Run(context.Background(), dir, o, func(l Line) {
					if l.Fail != "" {
						t.Errorf("%s %s: %g at %v, %s: %s", l.Prompt, l.Quantity, l.Max, l.At, l.Way, l.Fail)
					}
				})
				if err != nil || !ok {
					t.Errorf("passed: %v, %v", ok, err)
				}
			})
		}
	}
}
