package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// ulps is how far got is from want, in units of the last place that an f32 near want has.
func ulps(got float32, want float64) float64 {
	near := float32(want)
	switch {
	case want != want || got != got:
		if want != want && got != got {
			return 0
		}
		return math.Inf(1)
	case math.IsInf(float64(near), 0) || math.IsInf(float64(got), 0):
		if near == got {
			return 0
		}
		if math.Abs(want) > math.MaxFloat32 { // what rounds to the largest number
			return math.Abs(float64(got)-want) / 0x1p104
		}
		return math.Inf(1)
	}
	_, e := math.Frexp(float64(near))
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// everyFloat is one of each stretch of neighbours among all f32.
func everyFloat(step uint64) (x []float32) {
	for bits := uint64(0); bits < 1<<32; bits += step {
		x = append(x, math.Float32frombits(uint32(bits)))
	}
	for _, v := range []float64{0, 1, 20, 30, 87.3, 88.7, 88.73, 103.9, 104, math.MaxFloat32, math.Inf(1)} {
		x = append(x, float32(v), -float32(v))
	}
	return append(x, float32(math.NaN()))
}

// worst is the largest error of an operation of one operand, and where.
func worst(run func(c *kernels.Call, lo, hi int), attrs graph.Attrs, x []float32, want func(float64) float64) (err float64, at float32) {
	in, out := table(graph.F32, 1, len(x), len(x), 0), table(graph.F32, 1, len(x), len(x), 0)
	in.F32 = x
	run(&kernels.Call{Args: []kernels.Tensor{in}, Results: []kernels.Tensor{out}, Attrs: attrs}, 0, 1)
	for i, v := range x {
		if e := ulps(out.F32[i], want(float64(v))); e > err {
			err, at = e, v
		}
	}
	return err, at
}

// TestFunctions holds functions of one element to float64 for numbers from everywhere.
func TestFunctions(t *testing.T) {
	least := map[string]float32{"gelu_tanh": -2} // the plain ones flush, or cancel, what is below
	for op, f := range map[string]struct {
		want  func(float64) float64
		attrs graph.Attrs
		most  float64 // ulps, in vectors
	}{
		"neg_exp":  {func(x float64) float64 { return -min(math.Exp(x), math.MaxFloat32) }, nil, 0.501},
		"silu":     {func(x float64) float64 { return x / (1 + math.Exp(-x)) }, nil, 0.501},
		"softplus": {func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, nil, 0.51},
		"gelu":     {func(x float64) float64 { return x * 0.5 * math.Erfc(-x/math.Sqrt2) }, nil, 0.51},
		"gelu_tanh": {func(x float64) float64 {
			return x / (1 + math.Exp(-2*0.79788456080286535588*(x+0.044715*x*x*x)))
		}, nil, 0.51},
		"relu":  {func(x float64) float64 { return max(x, 0) }, nil, 0},
		"relu2": {func(x float64) float64 { return max(x, 0) * max(x, 0) }, nil, 0.501},
		"clamp": {func(x float64) float64 { return min(max(x, -1.5), 7) }, graph.Attrs{"min": -1.5, "max": 7.0}, 0},
		"times": {func(x float64) float64 { return float64(float32(x * 0.3)) }, graph.Attrs{"by": 0.3}, 1},
	} {
		t.Run(op, func(t *testing.T) {
			eachISA(t, op, func(t *testing.T, isa string, k kernels.Kernel) {
				most, x := f.most, everyFloat(4999)
				if isa == plain {
					from, ok := least[op]
					if !ok {
						from = -80
					}
					most, x = max(most, 4), slices.DeleteFunc(x, func(v float32) bool { return v < from })
				}
				if err, at := worst(k.Run, f.attrs, x, f.want); err > most {
					t.Errorf("%s is wrong by %.3f ulps at %g", op, err, at)
				} else {
					t.Logf("%s: %.3f ulps at %g", op, err, at)
				}
			})
		})
	}
}
