package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

// rms is 1 / sqrt(mean x² + eps). The sum is kept in float64: it costs nothing
// next to the memory traffic and keeps wide rows exact.
func rms(x []float32, eps float64) float32 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return float32(1 / math.Sqrt(sum/float64(len(x))+eps))
}

func rmsnorm(c *kernels.Call, lo, hi int) {
	w, eps := c.Args[1].Vector(), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		normalise(c.Results[0].Row(i), c.Args[0].Row(i), w, eps)
	}
}

func unitRMSNorm(c *kernels.Call, lo, hi int) {
	eps := c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		f := rms(x, eps)
		for j := range y {
			y[j] = x[j] * f
		}
	}
}

func groupRMSNorm(c *kernels.Call, lo, hi int) {
	w, eps, groups := c.Args[1].Vector(), c.Attrs.Float("eps"), c.Attrs.Int("groups")
	size := c.Args[1].Full / groups
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for g := 0; g < len(w); g += size {
			normalise(y[g:g+size], x[g:g+size], w[g:g+size], eps)
		}
	}
}

// sumsq is the first half of rmsnorm, rmsScale the second.
func sumsq(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		var sum float64
		for _, v := range c.Args[0].Row(i) {
			sum += float64(v) * float64(v)
		}
		c.Results[0].F32[i*c.Results[0].Stride] = float32(sum)
	}
}

func rmsScale(c *kernels.Call, lo, hi int) {
	w := c.Args[2].Vector()
	for i := lo; i < hi; i++ {
		f := factor(c, i)
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = w[j] * (x[j] * f)
		}
	}
}

// rmsRows is the factor of rmsScale alone.
func rmsRows(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		f := factor(c, i)
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = x[j] * f
		}
	}
}

// factor is 1 / sqrt(sum / width + eps) of row i.
func factor(c *kernels.Call, i int) float32 {
	sum := c.Args[1].F32[i*c.Args[1].Stride]
	return float32(1 / math.Sqrt(float64(sum)/float64(c.Attrs.Int("width"))+c.Attrs.Float("eps")))
}

func normalise(y, x, w []float32, eps float64) {
	f := rms(x, eps)
	w, x = w[:len(y)], x[:len(y)]
	for j := range y {
		y[j] = w[j] * (x[j] * f)
	}
}
