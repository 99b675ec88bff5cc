package reference

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"add_rmsnorm":          whole(addRMSNorm),
	"conv1d_silu":          whole(convSilu),
	"unbiased_conv1d_silu": whole(unbiasedConvSilu),
	"silu_mul":             whole(zip(func(x, y float64) float64 { return silu(x) * y })),
	"bias_softplus":        whole(perChannel(func(x, b float64) float64 { return softplus(x + b) })),
	"add_scaled":           whole(addScaled),
})

// addRMSNorm norms the sum before it is rounded.
func addRMSNorm(c *kernels.Call) {
	x, y, w, sum, normed := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0], &c.Results[1]
	for i := range sum.Rows() {
		var squares float64
		for j := range sum.Cols {
			v := at(x, i, j) + at(y, i, j)
			squares += v * v
		}
		rms := math.Sqrt(squares/float64(sum.Cols) + c.Attrs.Float("eps"))
		for j := range sum.Cols {
			v := at(x, i, j) + at(y, i, j)
			set(sum, i, j, v)
			set(normed, i, j, at(w, j, 0)*v/rms)
		}
	}
}

func convSilu(c *kernels.Call) {
	b := &c.Args[2]
	convolve(c, &c.Args[3], &c.Args[4], func(sum float64, ch int) float64 { return silu(sum + at(b, ch, 0)) })
}

func unbiasedConvSilu(c *kernels.Call) {
	convolve(c, &c.Args[2], &c.Args[3], func(sum float64, _ int) float64 { return silu(sum) })
}

func addScaled(c *kernels.Call) {
	y, x, d := &c.Args[0], &c.Args[1], &c.Args[2]
	fill(c, func(i, j int) float64 { return at(y, i, j) + at(x, i, j)*at(d, j/(x.Cols/d.Rows()), 0) })
}
