package cpu

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/reference"
)

// TestSet: every operation that computes has a kernel here and a plain one.
func TestSet(t *testing.T) {
	n := 0
	for _, op := range graph.Ops() {
		if op.Class != graph.Compute {
			continue
		}
		n++
		if _, ok := Kernels[op.Name]; !ok {
			t.Errorf("no fast kernel for %s", op.Name)
		}
		if _, ok := reference.Kernels[op.Name]; !ok {
			t.Errorf("no plain kernel for %s", op.Name)
		}
	}
	if len(Kernels) != n || len(reference.Kernels) != n {
		t.Errorf("%d and %d kernels for %d operations", len(Kernels), len(reference.Kernels), n)
	}
}

func TestExp(t *testing.T) {
	x, y := make([]float32, 1), make([]float32, 1)
	exp := func(v float32) float64 {
		x[0] = v
		expInto(y, x, 1)
		return float64(y[0])
	}
	for v := float32(-87.2); v < 88.72; v += 0.00137 {
		if want := math.Exp(float64(v)); math.Abs(exp(v)-want) > 2.5e-7*want {
			t.Fatalf("exp(%g) is %g, want %g", v, exp(v), want)
		}
	}
	for v, want := range map[float32]float64{0: 1, -88: 0, -1e30: 0, float32(math.Inf(-1)): 0, 100: math.Inf(1), float32(math.Inf(1)): math.Inf(1)} {
		if got := exp(v); got != want {
			t.Errorf("exp(%g) is %g, want %g", v, got, want)
		}
	}
	if got := exp(float32(math.NaN())); !math.IsNaN(got) {
		t.Errorf("exp(NaN) is %g", got)
	}
}
