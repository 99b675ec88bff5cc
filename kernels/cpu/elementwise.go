package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"bias":      {Units: kernels.RowUnits, Run: bias},
	"scale":     {Units: kernels.RowUnits, Run: scale},
	"add":       {Units: kernels.RowUnits, Run: add},
	"mul":       {Units: kernels.RowUnits, Run: mul},
	"times":     {Units: kernels.RowUnits, Run: times},
	"plus":      {Units: kernels.RowUnits, Run: plus},
	"silu":      kernels.PerRow(silu),
	"gelu":      kernels.PerRow(gelu),
	"gelu_tanh": kernels.PerRow(geluTanh),
	"relu":      kernels.PerRow(relu),
	"relu2":     kernels.PerRow(relu2),
	"sigmoid":   kernels.PerRow(sigmoids),
	"tanh":      kernels.PerRow(tanh),
	"softplus":  kernels.PerRow(softplus),
	"neg_exp":   kernels.PerRow(negExp),
	"clamp":     {Units: kernels.RowUnits, Run: clamp},
})

func add(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		y, a, b := c.Results[0].Row(i), c.Args[0].Row(i), c.Args[1].Row(i)
		for j := range y {
			y[j] = a[j] + b[j]
		}
	}
}

func mul(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		y, a, b := c.Results[0].Row(i), c.Args[0].Row(i), c.Args[1].Row(i)
		for j := range y {
			y[j] = a[j] * b[j]
		}
	}
}

func times(c *kernels.Call, lo, hi int) {
	by := float32(c.Attrs.Float("by"))
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = x[j] * by
		}
	}
}

func plus(c *kernels.Call, lo, hi int) {
	by := float32(c.Attrs.Float("by"))
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = x[j] + by
		}
	}
}

func bias(c *kernels.Call, lo, hi int) {
	b := c.Args[1].Vector()
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = x[j] + b[j]
		}
	}
}

// scale multiplies each len(row)/len(d) neighbours by one factor.
func scale(c *kernels.Call, lo, hi int) {
	d := c.Args[1].Vector()
	if len(d) == 0 {
		return
	}
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		size := len(y) / len(d)
		for h, f := range d {
			for j := h * size; j < (h+1)*size; j++ {
				y[j] = x[j] * f
			}
		}
	}
}

func clamp(c *kernels.Call, lo, hi int) {
	least, most := float32(c.Attrs.Float("min")), float32(c.Attrs.Float("max"))
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = min(max(x[j], least), most)
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
		v := float64(v)
		e := exp64(-math.Abs(v))
		if v < 0 {
			v *= e
		}
		y[j] = float32(v / (1 + e))
	}
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
		y[j] = v
		if !(v > 20) { // exp(-20) is below the rounding of 20
			v := float64(v)
			y[j] = float32(max(v, 0) + math.Log1p(exp64(-math.Abs(v))))
		}
	}
}

func gelu(y, x []float32) {
	for j, v := range x {
		v := float64(v)
		y[j] = float32(v * 0.5 * math.Erfc(-v/math.Sqrt2))
	}
}

func geluTanh(y, x []float32) {
	const sqrt2OverPi = 0.79788456080286535588
	for j, v := range x {
		v := float64(v)
		y[j] = float32(0.5 * v * (1 + math.Tanh(sqrt2OverPi*(v+0.044715*v*v*v))))
	}
}
