package cuda_test

import (
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
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
		e := m.engine(t, &cuda.Device{Driver: sim.New(sim.Options{Seed: seed, Capability: [2]int{9, 0}})})
		compare(t, "by cuBLAS", first(t, e, prompt), want, 1e-4)
		e.Close()
	}
}
