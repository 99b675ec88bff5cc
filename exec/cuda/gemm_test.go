package cuda_test

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	kernels "github.com/krait-ml/krait/kernels/cuda"
)

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
// numbers are taken apart.
func TestWhoMultiplies(t *testing.T) {
	prompt := make([]int, 40)
	for _, c := range []struct {
		capability  [2]int
		device      cuda.Device
		tiles, blas bool
	}{
		{[2]int{8, 0}, cuda.Device{}, true, false},
		{[2]int{8, 6}, cuda.Device{}, false, true},
		{[2]int{9, 0}, cuda.Device{Math: kernels.BF16}, false, true},
		{[2]int{9, 0}, cuda.Device{NoGEMM: true}, true, false},
	} {
		m, meter := open(t, "mamba-a", 1, "channel"), &sim.Meter{Dry: true, Sample: true} // only what is launched counts
		c.device.Driver = sim.New(sim.Options{Capability: c.capability, Meter: meter})
		e := m.engine(t, &c.device)
		first(t, e, prompt)
		e.Close()
		tiles, blas := false, false
		for _, d := range meter.Done {
			tiles = tiles || strings.HasPrefix(d.Name, "mma_split_f32")
			blas = blas || d.Name == "cublasGemmEx"
		}
		if tiles != c.tiles || blas != c.blas {
			t.Errorf("%v, %v: tiles %v, cuBLAS %v", c.capability, c.device.Math, tiles, blas)
		}
	}
}
