//go:build gorgonia_cu && linux && (amd64 || arm64)

package gorgoniacu_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/devices"
)

// TestModel: models run on the device that is called gorgonia-cu, and choose the
// tokens that they choose on the CPU. NCCL is not there, so that two ranks share a GPU.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		model string
		ranks int
	}{{"mamba-a", 1}, {"mamba-a", 2}, {"mamba2-g1", 2}, {"jamba", 1}} {
		t.Run(fmt.Sprint(c.model, " on ", c.ranks), func(t *testing.T) {
			simulate(t, sim.Options{Seed: 1})
			device, err := devices.Open("gorgonia-cu", devices.Options{})
			if err != nil {
				t.Fatal(err)
			}
			o := krait.Options{Sharding: krait.Sharding{Ranks: c.ranks}}
			want := generate(t, c.model, o)
			o.Device = device
			if got := generate(t, c.model, o); !slices.Equal(got, want) {
				t.Errorf("tokens %d, want %d", got, want)
			}
		})
	}
}

// generate continues a prompt of more tokens than decoding has.
func generate(t *testing.T, name string, o krait.Options) []int {
	t.Helper()
	m, err := krait.Open("../../testdata/golden/"+name, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	prompt := make([]int, 40)
	for i := range prompt {
		prompt[i] = 3 + i%11
	}
	out, err := m.GenerateIDs(context.Background(), prompt, krait.Generate{MaxTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	return out.IDs
}
