package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"sigmoid": kernels.PerRow(sigmoids),
	"tanh":    kernels.PerRow(tanh),
	"plus":    {Units: kernels.RowUnits, Run: plus},
})

func plus(c *kernels.Call, lo, hi int) {
	by := float32(c.Attrs.Float("by"))
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = x[j] + by
		}
	}
}

func relu(y, x []float32) {
	for j := range y {
		y[j] = max(x[j], 0)
	}
}

func relu2(y, x []float32) {
	for j := range y {
		v := max(x[j], 0)
		y[j] = v * v
	}
}

// Functions with exponentials compute in float64 and round once.

func silu(y, x []float32) {
	for j, v := range x[:len(y)] {
		y[j] = siluOf(v)
	}
}

func siluOf(x float32) float32 {
	v := float64(x)
	e := exp64(-math.Abs(v))
	if v < 0 {
		v *= e
	}
	return float32(v / (1 + e))
}

func sigmoids(y, x []float32) {
	for j, v := range x[:len(y)] {
		e := exp64(-math.Abs(float64(v)))
		one := 1.0
		if v < 0 {
			one = e
		}
		y[j] = float32(one / (1 + e))
	}
}

func tanh(y, x []float32) {
	for j, v := range x[:len(y)] {
		y[j] = float32(math.Tanh(float64(v)))
	}
}

// negExp ends at the lowest float32: a rate of -Inf would be a NaN times a step of 0.
func negExp(y, x []float32) {
	for j, v := range x[:len(y)] {
		v := float64(v)
		e := exp64(-math.Abs(v))
		if v > 0 {
			e = 1 / e
		}
		y[j] = float32(-min(e, math.MaxFloat32))
	}
}

func softplus(y, x []float32) {
	for j, v := range x[:len(y)] {
		y[j] = softplusOf(v)
	}
}

func softplusOf(x float32) float32 {
	if x > 20 { // exp(-20) is below the rounding of 20
		return x
	}
	v := float64(x)
	return float32(max(v, 0) + math.Log1p(exp64(-math.Abs(v))))
}

func gelu(y, x []float32) {
	for j, v := range x[:len(y)] {
		v := float64(v)
		y[j] = float32(v * 0.5 * math.Erfc(-v/math.Sqrt2))
	}
}

func geluTanh(y, x []float32) {
	const sqrt2OverPi = 0.79788456080286535588
	for j, v := range x[:len(y)] {
		v := float64(v)
		y[j] = float32(0.5 * v * (1 + math.Tanh(sqrt2OverPi*(v+0.044715*v*v*v))))
	}
}
