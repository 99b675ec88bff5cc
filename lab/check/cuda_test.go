package check

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// cudaTolerances are wider where the reference's own values inside the model are
// 2e-4 from a float64 forward pass.
var cudaTolerances = map[string]float64{"zamba2": 4e-4}

// TestCUDA: every golden checkpoint passes on simulated GPUs, on 1, 2 or 4 ranks that share one or
// have one each; on one rank in chunks, too. The long prompts, which take the kernels of more than
// 32 rows, run for two of them in CI, the short one for the others. All tokens that follow, and the
// states after them, are for some goldens. With KRAIT_TEST_ALL each golden is on 1, 2 and 4, with
// all of this.
func TestCUDA(t *testing.T) {
	cases := covering.Pairs(t.Name(), 3, 2, 2, 2)
	drawn, few := covering.Drawn(t, goldens.Folders(t, "../..")), goldens.Few(t)
	for i, dir := range goldens.Folders(t, "../..") {
		name := filepath.Base(dir)
		long := name == "bamba" || name == "mamba-a" // attention and a scan, and a scan alone
		if (!long || few) && !slices.Contains(drawn, dir) {
			continue
		}
		for k, ranks := range []int{1, 2, 4} {
			c := cases[i%len(cases)]
			if c[0] != k && !goldens.All() {
				continue
			}
			gpus := 1
			if c[1] == 1 {
				gpus = ranks
			}
			t.Run(fmt.Sprintf("%s/tp=%d/%d GPUs", name, ranks, gpus), func(t *testing.T) {
				t.Parallel()
				o := Options{Tolerance: 1e-4, Sharding: krait.Sharding{Ranks: ranks, Overlap: c[2] == 1}, Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, Seed: uint64(i), Capability: [2]int{8 + c[3], 0}})}}
				if ranks == 1 {
					o.Chunks = []int{3}
				}
				if !goldens.All() {
					if i%13 != 0 || ranks > 1 {
						o.steps = 3 // the first is not captured, the second is, the third is replayed
					}
					o.only = func(prompt, way string) bool {
						if long {
							return way == "batched"
						}
						return prompt != "a" && (ranks > 1 || way != "whole")
					}
				}
				if x, ok := cudaTolerances[name]; ok {
					o.Tolerance = x
				}
				mustPass(t, dir, o)
			})
		}
	}
}
