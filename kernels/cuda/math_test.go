package cuda

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestFunctions holds functions of one number against float64 over the range of
// f32, relative to the result, and to least where that is larger.
func TestFunctions(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		op           string
		f            func(x float64) float64
		share, least float64
		lowest       float64 // of the range
		edges        map[float64]float64
	}{
		{"neg_exp", func(x float64) float64 { return -math.Exp(x) }, 3e-7, 1e-37, -86.6,
			map[float64]float64{0: -1, -88: 0, -1e30: 0, -inf: 0, 88.7: -math.Exp(float64(float32(88.7))), 89: -math.MaxFloat32, 1e30: -math.MaxFloat32, inf: -math.MaxFloat32}},
		{"softplus", func(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, 1e-6, 1e-37, -86,
			map[float64]float64{-inf: 0, inf: inf, 1e30: 1e30}},
		{"silu", func(x float64) float64 { return x / (1 + math.Exp(-x)) }, 1e-6, 1e-35, -85, map[float64]float64{0: 0, inf: inf, -1e30: 0}},
		{"gelu", func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }, 1e-6, 0.3, -40, map[float64]float64{0: 0, inf: inf, -1e10: 0}},
		{"gelu_tanh", func(x float64) float64 {
			return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		}, 1e-6, 0.3, -40, map[float64]float64{0: 0, inf: inf, -1e10: 0}},
		{"sigmoid", func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 1e-6, 1e-37, -85, map[float64]float64{0: 0.5, inf: 1, -inf: 0, -1e30: 0}},
		{"tanh", math.Tanh, 1e-6, 0, -80, map[float64]float64{0: 0, inf: 1, -inf: -1, 1e30: 1}},
		{"relu2", func(x float64) float64 { return math.Max(x, 0) * math.Max(x, 0) }, 1e-7, 1e-37, -80, map[float64]float64{inf: inf, -inf: 0}},
		{"relu", func(x float64) float64 { return math.Max(x, 0) }, 0, 0, -80, map[float64]float64{inf: inf, -inf: 0}},
	} {
		t.Run(c.op, func(t *testing.T) {
			var in []float32
			for x := c.lowest; x < 88.6; x += 0.0137 {
				in = append(in, float32(x))
			}
			for x := 1e-30; x < 1; x *= 3 {
				in = append(in, float32(x), float32(-x))
			}
			got := runFunction(t, c.op, in)
			for i, x := range in {
				if want := c.f(float64(x)); !(math.Abs(float64(got[i])-want) <= c.share*max(math.Abs(want), c.least)) {
					t.Fatalf("%s(%g) is %g, want %g", c.op, x, got[i], want)
				}
			}
			for x, want := range c.edges {
				if y := float64(runFunction(t, c.op, []float32{float32(x)})[0]); y != want && !(math.Abs(y/want-1) < 1e-6) {
					t.Errorf("%s(%g) is %g, want %g", c.op, x, y, want)
				}
			}
			if y := runFunction(t, c.op, []float32{float32(math.NaN())})[0]; y == y {
				t.Errorf("%s(NaN) is %g", c.op, y)
			}
		})
	}
}

// runFunction runs an operation of one operand on a row.
func runFunction(t *testing.T, name string, in []float32) []float32 {
	dev := newDevice(t)
	x := shaped(graph.F32, 1, len(in))
	x.F32 = in
	on := &Call{Args: []Tensor{dev.upload(&x, 0)}, Results: []Tensor{dev.empty(&x, 0)}}
	dev.compute(findOp(t, name), on, 0)
	y := clone(&x)
	dev.download(on.Results[0], &y)
	return y.F32
}
