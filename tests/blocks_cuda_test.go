package tests

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/convert"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestBlocksOnCUDA: weights in blocks, of some formats or with KRAIT_TEST_ALL of every one, give on
// simulated GPUs, on ranks that cut inside of blocks, the logits of the folder in f32 on the CPU:
// those of the wide model, whose rows are whole superblocks, and of goldens, whose are not.
func TestBlocksOnCUDA(t *testing.T) {
	names := []string{"wide", "mamba-a", "mamba2-g4", "jamba", "nemotron-h-moe", "lfm2-moe"}
	kinds := append(slices.Sorted(maps.Keys(publications)), "q8_0", "q4_k_m", "q5_k_m", "q6_k", "iq4_xs", "q4_0", "q5_0", "iq4_nl")
	kinds = covering.Drawn(t, kinds)
	if goldens.Few(t) {
		names = names[1:2]
	}
	for _, x := range covering.Drawn(t, covering.Each(t, []int{len(kinds), len(names), 3}, 1)) {
		kind, name, ranks := kinds[x[0]], names[x[1]], 1+x[2]
		t.Run(fmt.Sprintf("%s/%s/tp=%d", name, kind, ranks), func(t *testing.T) {
			t.Parallel()
			from, dir := filepath.Join("../testdata/golden", name), t.TempDir()
			if name == "wide" {
				from = filepath.Join(dir, name)
				wideModel(t, from)
			}
			blocks, twin, as := filepath.Join(dir, "blocks.gguf"), filepath.Join(dir, "twin"), ""
			if p, ok := publications[kind]; ok {
				blocks, as = filepath.Join(dir, "blocks"), "f32"
				publish(t, from, blocks, p)
			} else if _, err := convert.Write(t.Context(), from, blocks, kind, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := convert.Write(t.Context(), blocks, twin, as, nil); err != nil {
				t.Fatal(err)
			}
			device := &cuda.Device{Driver: sim.New(sim.Options{Devices: 1 + x[2]%2*(ranks-1), Ordered: true})}
			nearLogits(t, blocks, twin, krait.Options{Sharding: krait.Sharding{Ranks: ranks}, Device: device}, 1e-4)
		})
	}
}
