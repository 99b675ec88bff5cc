package check

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
)

// cudaTolerances are wider where the reference's own values inside the model are
// 2e-4 from a float64 forward pass.
var cudaTolerances = map[string]float64{"zamba2": 4e-4}

// TestCUDA: every golden checkpoint passes on simulated GPUs, on 1, 2 and 4 ranks
// that share one or have one each. The long prompts run on one of these, another for
// each golden, the short one on the others, and on one rank in chunks. All tokens that
// follow, and the states after them, are for a third of the goldens, on one rank.
func TestCUDA(t *testing.T) {
	for i, dir := range goldens.Folders(t, "../../..") {
		for _, ranks := range []int{1, 2, 4} {
			gpus := 1
			if i%2 == ranks/2%2 {
				gpus = ranks
			}
			t.Run(fmt.Sprintf("%s/tp=%d/%d GPUs", filepath.Base(dir), ranks, gpus), func(t *testing.T) {
				t.Parallel()
				o := Options{Tolerance: 1e-4, Sharding: krait.Sharding{Ranks: ranks, Overlap: i%2 == 0}, Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, Seed: uint64(i)})}}
				if ranks == 1 {
					o.Chunks = []int{3}
				}
				if !goldens.All() {
					if i%3 != 0 || ranks > 1 {
						o.steps = 4 // the first is not captured, the second is, others are replayed
					}
					o.only = func(prompt, way string) bool {
						if prompt == "a" || i%3 == ranks/2 && way == "whole" {
							return i%3 == ranks/2 && way == "batched"
						}
						return true
					}
				}
				if x, ok := cudaTolerances[filepath.Base(dir)]; ok {
					o.Tolerance = x
				}
				mustPass(t, dir, o)
			})
		}
	}
}
