package check

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
)

// cudaTolerances are wider where the reference's own values inside the model are
// 2e-4 from a float64 forward pass.
var cudaTolerances = map[string]float64{"zamba2": 4e-4}

// TestCUDA: every golden checkpoint passes on simulated GPUs, on one rank, there in chunks
// too, and on 2 or 4 that share one or have one each. The long prompts, which take the kernels
// of more than 32 rows, run on one of these for the first golden of each family, the short
// one on the others. All tokens that follow, and the states after them, are for some goldens,
// on one rank. With KRAIT_TEST_ALL each golden is on 1, 2 and 4, with all of this.
func TestCUDA(t *testing.T) {
	seen := map[string]bool{}
	for i, dir := range goldens.Folders(t, "../..") {
		split := 2 + i%2*2
		long := 0 // ranks of the long prompts
		if family := familyOf(t, dir); !seen[family] {
			seen[family] = true
			if long = 1; len(seen)%4 == 2 {
				long = split
			}
		}
		if name := filepath.Base(dir); !goldens.All() && name != "bamba" && name != "jamba" && name != "mamba-a" {
			long = 0 // attention with each kind of scans, and scans alone; CI has all families
		}
		for _, ranks := range []int{1, 2, 4} {
			if ranks > 1 && ranks != split && !goldens.All() {
				continue
			}
			gpus := 1
			if i/2%2 == ranks/2%2 {
				gpus = ranks
			}
			t.Run(fmt.Sprintf("%s/tp=%d/%d GPUs", filepath.Base(dir), ranks, gpus), func(t *testing.T) {
				t.Parallel()
				o := Options{Tolerance: 1e-4, Sharding: krait.Sharding{Ranks: ranks, Overlap: i%2 == 0}, Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: gpus, Seed: uint64(i), Capability: [2]int{8 + i%2, 0}})}}
				if ranks == 1 {
					o.Chunks = []int{3}
				}
				if !goldens.All() {
					if i%6 != 0 || ranks > 1 {
						o.steps = 3 // the first is not captured, the second is, the third is replayed
					}
					o.only = func(prompt, way string) bool {
						if ranks == long {
							return way == "batched"
						}
						return prompt != "a" && (ranks > 1 || way != "whole")
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

// familyOf is the golden's model_type.
func familyOf(t *testing.T, dir string) string {
	t.Helper()
	m, _, err := checkpoint.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m.Family
}
