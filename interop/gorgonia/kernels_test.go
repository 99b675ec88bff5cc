package gorgonia_test

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/interop/gorgonia"
	"github.com/krait-ml/krait/kernels"
	cpukernels "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// TestKernels: each operation by Gorgonia's machine gives what the fast kernels give.
func TestKernels(t *testing.T) {
	for name := range gorgonia.Kernels() {
		op, ok := graph.Lookup(name)
		if !ok {
			t.Fatalf("there is no operation %s", name)
		}
		t.Run(name, func(t *testing.T) {
			prop.Check(t, func(t *rapid.T) {
				c := newCase(t, op)
				oracles[name].run(c) // draws the case
				got, want := c.run(withPlain()), c.run(cpukernels.Kernels)
				for i := range want {
					if off := distance(got[i], float64s(want[i])); !(off <= tolerance) {
						t.Errorf("result %d is off by %g of its largest magnitude", i, off)
					}
				}
			})
		})
	}
}

// withPlain is Gorgonia's kernels, and the plain ones for all other operations.
func withPlain() kernels.Set {
	set := maps.Clone(reference.Kernels)
	maps.Copy(set, gorgonia.Kernels())
	return set
}

func float64s(v []float32) []float64 {
	f := make([]float64, len(v))
	for i, x := range v {
		f[i] = float64(x)
	}
	return f
}

// TestModels: models compute the same by Gorgonia's machine, one operation at a time.
func TestModels(t *testing.T) {
	set := withPlain()
	for _, name := range []string{"mamba-a", "zamba2", "lfm2"} {
		t.Run(name, func(t *testing.T) {
			var logits [][]float32
			for _, o := range []krait.Options{{}, {Device: &cpu.Device{Kernels: set}}} {
				m, err := krait.Open("../../testdata/golden/"+name, o)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				s, err := m.NewSequence()
				if err != nil {
					t.Fatal(err)
				}
				fed, err := s.Feed(context.Background(), []int{1, 2, 3, 5, 8}, krait.Selection{Logits: []int{0, 4}})
				if err != nil {
					t.Fatal(err)
				}
				logits = append(logits, slices.Concat(fed.Logits...))
			}
			for i, v := range logits[0] {
				if math.Abs(float64(v-logits[1][i])) > 1e-4 {
					t.Fatalf("logit %d is %g, by Gorgonia %g", i, v, logits[1][i])
				}
			}
		})
	}
}
