package cuda_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// Goldens are narrow: their products are in pieces as those of large models are.
func init() { kernels.PiecesLeast = 64 }

// TestProductsOfRanks: ranks that share a GPU multiply with cuBLAS at the same time,
// each with its own workspace; also as graphs.
func TestProductsOfRanks(t *testing.T) {
	t.Parallel()
	m := open(t, "mamba-a", 3, "channel")
	prompt := make([]int, 40)
	for i := range prompt {
		prompt[i] = i
	}
	cpu := m.engine(t, &cpu.Device{})
	defer cpu.Close()
	want := first(t, cpu, prompt)
	for seed := range uint64(3) {
		e := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Seed: seed, Capability: [2]int{8, 9}})})
		compare(t, "by cuBLAS", first(t, e, prompt), want, 1e-4)
		e.Close()
	}
}

// TestWhoMultiplies: by weights in f32 cuBLAS does in f32, but where bf16 is so much faster that
// numbers are taken apart; by weights in bf16 it multiplies the pieces of more than 128 rows, but
// where n or k is as small as of x_proj and dt_proj.
func TestWhoMultiplies(t *testing.T) {
	bf16 := asBF16(t, golden(t, "mamba-a"))
	for i, c := range []struct {
		dir         string
		tokens      int
		capability  [2]int
		device      cuda.Device
		tiles, blas bool
	}{
		{"", 40, [2]int{8, 0}, cuda.Device{}, true, false},
		{"", 40, [2]int{8, 6}, cuda.Device{}, false, true},
		{"", 40, [2]int{9, 0}, cuda.Device{Math: kernels.BF16}, false, true},
		{"", 40, [2]int{9, 0}, cuda.Device{NoGEMM: true}, true, false},
		{"", 129, [2]int{9, 0}, cuda.Device{}, true, false},
		{bf16, 128, [2]int{9, 0}, cuda.Device{}, true, false},
		{bf16, 129, [2]int{9, 0}, cuda.Device{}, true, true},
		{bf16, 129, [2]int{8, 6}, cuda.Device{}, true, true},
		{bf16, 129, [2]int{9, 0}, cuda.Device{NoGEMM: true}, true, false},
		{bf16, 129, [2]int{9, 0}, cuda.Device{BatchInvariant: true}, true, false},
	} {
		if i%2 == 1 && i < 8 && goldens.Few(t) {
			continue
		}
		if c.dir == "" {
			c.dir = "../../testdata/golden/mamba-a"
		}
		meter := &sim.Meter{Dry: true, Sample: true} // only what is launched counts
		c.device.Driver = sim.New(sim.Options{Capability: c.capability, Meter: meter})
		m := openAt(t, c.dir, 1, "channel", &c.device)
		e := m.engine(t, &c.device)
		first(t, e, make([]int, c.tokens))
		e.Close()
		tiles, products, apart := false, 0, 0
		for _, d := range meter.Done {
			switch {
			case strings.HasPrefix(d.Name, "mma_split"):
				tiles = true
			case d.Name == "cublasGemmEx":
				products++
			case strings.HasSuffix(strings.TrimSuffix(d.Name, "_f32"), "_apart"): // by itself, or by what made the activations
				apart++
			}
		}
		if tiles != c.tiles || products > 0 != c.blas {
			t.Errorf("%d tokens, %v, %v: tiles %v, %d products by cuBLAS", c.tokens, c.capability, c.device.Math, tiles, products)
		}
		if (apart > 0) != (c.dir == bf16 && c.blas) || apart > 0 && products != kernels.Pieces*apart {
			t.Errorf("%d tokens, %v: %d products by cuBLAS of %d that were taken apart", c.tokens, c.capability, products, apart)
		}
	}
}

// TestApart: by cuBLAS, prompts of more than 128 tokens give the CPU's logits, of goldens with
// weights in bf16, one of each kind of product: plain, normed, added, gated.
func TestApart(t *testing.T) {
	goldens.CI(t)
	layers := map[string]int{"mamba-a": 1, "mamba2-g1": 1, "jamba": 3} // with every kind
	for i, name := range []string{"mamba-a", "mamba2-g1", "jamba", "granite-hybrid-dense"} {
		for _, ranks := range []int{1, 2} {
			if i > 0 && ranks != 1+i%2 && !goldens.All() || i != 2 && goldens.Few(t) {
				continue // jamba has each kind of product
			}
			t.Run(fmt.Sprintf("%s/tp=%d", name, ranks), func(t *testing.T) {
				t.Parallel()
				d := &cuda.Device{Driver: sim.New(sim.Options{Capability: [2]int{9, 0}})}
				dir := golden(t, name)
				if n := layers[name]; n > 0 {
					dir = goldens.Shallow(t, "../..", name, n)
				}
				m := openAt(t, asBF16(t, dir), ranks, "channel", d)
				prompt := make([]int, 130)
				for i := range prompt {
					prompt[i] = i % 50
				}
				cpu := m.engine(t, &cpu.Device{})
				defer cpu.Close()
				e := m.engine(t, d)
				defer e.Close()
				compare(t, name, first(t, e, prompt), first(t, cpu, prompt), 1e-4)
			})
		}
	}
}
