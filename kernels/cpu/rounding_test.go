package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// functions are those that are computed in float64 and rounded once.
var functions = map[string]func(float64) float64{
	"silu": func(x float64) float64 {
		if x < -700 && !math.IsInf(x, -1) {
			return 0
		}
		return x / (1 + math.Exp(-x))
	},
	"softplus": func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) },
	"neg_exp":  func(x float64) float64 { return -min(math.Exp(x), math.MaxFloat32) },
	"gelu":     func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) },
}

// TestRoundOnce: functions of an element are those in float64, rounded, on numbers of
// every size, and special ones.
func TestRoundOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	var in []float32
	for range 20_000 {
		in = append(in, float32(4*rng.NormFloat64()), float32(200*(rng.Float64()-0.5)), math.Float32frombits(rng.Uint32()&^(1<<30)))
	}
	inf := float32(math.Inf(1))
	for _, v := range []float32{0, 1, 20, 87, 88, 88.8, 103, 104, 690, 691, 1e30, 1e-30, 1e-45, inf, float32(math.NaN())} {
		in = append(in, v, -v)
	}
	for op, want := range functions {
		eachISA(t, op, func(t *testing.T, _ string, k kernels.Kernel) {
			x, y := table(graph.F32, 1, len(in), len(in), 0), table(graph.F32, 1, len(in), len(in), 0)
			copy(x.F32, in)
			k.Run(&kernels.Call{Args: []kernels.Tensor{x}, Results: []kernels.Tensor{y}}, 0, 1)
			for i, v := range in {
				if got, want := y.F32[i], want(float64(v)); !rounded(got, want, 1e-9) {
					t.Fatalf("%s of %g is %g, want %g", op, v, got, want)
				}
			}
		})
	}
}

// rounded reports whether got is want in float32, to the nearest but for an error of want.
func rounded(got float32, want, share float64) bool {
	if math.IsNaN(want) || math.IsInf(float64(float32(want)), 0) {
		return math.IsNaN(want) && got != got || float64(got) == float64(float32(want))
	}
	ulp := math.Float32frombits(math.Float32bits(float32(math.Abs(want)))+1) - float32(math.Abs(want))
	return math.Abs(float64(got)-want) <= float64(ulp)/2+share*math.Abs(want)
}
