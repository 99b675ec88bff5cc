package cpu

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"rmsnorm":         {Units: kernels.RowUnits, Run: rmsnorm},
	"unit_rmsnorm":    {Units: kernels.RowUnits, Run: unitRMSNorm},
	"group_rmsnorm":   {Units: kernels.RowUnits, Run: groupRMSNorm},
	"head_rmsnorm":    {Units: kernels.RowUnits, Run: headRMSNorm},
	"head_l2norm":     {Units: kernels.RowUnits, Run: headL2Norm},
	"sumsq":           {Units: kernels.RowUnits, Run: sumsq},
	"rms_scale":       {Units: kernels.RowUnits, Run: rmsScale},
	"rms_rows":        {Units: kernels.RowUnits, Run: rmsRows},
	"group_sumsq":     {Units: kernels.RowUnits, Run: groupSumsq},
	"group_rms_scale": {Units: kernels.RowUnits, Run: groupRMSScale},
})

// rms is 1 / sqrt(mean x² + eps). Norms compute in float64 and round once: it costs
// nothing next to the memory traffic and keeps wide rows exact.
func rms(x []float32, eps float64) float64 { return inverseRMS(squares(x), len(x), eps) }

func squares(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
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
			y[j] = float32(float64(x[j]) * f)
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

func headRMSNorm(c *kernels.Call, lo, hi int) {
	w, eps := c.Args[1].Vector(), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for h := 0; h < len(y); h += len(w) {
			normalise(y[h:h+len(w)], x[h:h+len(w)], w, eps)
		}
	}
}

func headL2Norm(c *kernels.Call, lo, hi int) {
	size, eps := c.Args[0].Unit, c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for h := 0; h < len(y); h += size {
			f := inverseRMS(squares(x[h:h+size]), 1, eps)
			for j := h; j < h+size; j++ {
				y[j] = float32(float64(x[j]) * f)
			}
		}
	}
}

// sumsq is the first half of rmsnorm, rmsScale the second.
func sumsq(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		c.Results[0].F32[i*c.Results[0].Stride] = float32(squares(c.Args[0].Row(i)))
	}
}

func rmsScale(c *kernels.Call, lo, hi int) {
	w := c.Args[2].Vector()
	for i := lo; i < hi; i++ {
		f := factor(c, i)
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = float32(float64(w[j]) * float64(x[j]) * f)
		}
	}
}

// groupSumsq is sumsq of each group. A rank that has a part of a group adds up
// that part.
func groupSumsq(c *kernels.Call, lo, hi int) {
	x, y := &c.Args[0], &c.Results[0]
	size := max(1, x.Full/c.Attrs.Int("groups"))
	for i := lo; i < hi; i++ {
		row := x.Row(i)
		for g := range y.Cols {
			from, to := kernels.Held(x, (y.Start()+g)*size, size)
			y.F32[i*y.Stride+g] = float32(squares(row[from:to]))
		}
	}
}

func groupRMSScale(c *kernels.Call, lo, hi int) {
	x, sums, w, size := &c.Args[0], &c.Args[1], c.Args[2].Vector(), c.Attrs.Int("width")
	for i := lo; i < hi; i++ {
		y, row := c.Results[0].Row(i), x.Row(i)
		for g := range sums.Cols {
			f := inverseRMS(float64(sums.F32[i*sums.Stride+g]), size, c.Attrs.Float("eps"))
			from, to := kernels.Held(x, (sums.Start()+g)*size, size)
			for j := from; j < to; j++ {
				y[j] = float32(float64(w[j]) * float64(row[j]) * f)
			}
		}
	}
}

// rmsRows is the factor of rmsScale alone.
func rmsRows(c *kernels.Call, lo, hi int) {
	for i := lo; i < hi; i++ {
		f := factor(c, i)
		y, x := c.Results[0].Row(i), c.Args[0].Row(i)
		for j := range y {
			y[j] = float32(float64(x[j]) * f)
		}
	}
}

// factor is 1 / sqrt(sum / width + eps) of row i.
func factor(c *kernels.Call, i int) float64 {
	return inverseRMS(float64(c.Args[1].F32[i*c.Args[1].Stride]), c.Attrs.Int("width"), c.Attrs.Float("eps"))
}

// inverseRMS is a NaN where the sum overflowed, as one that goes between ranks in
// float32 may: a factor of 0 would be a wrong norm without an error.
func inverseRMS(sum float64, width int, eps float64) float64 {
	if math.IsInf(sum, 1) {
		return math.NaN()
	}
	return 1 / math.Sqrt(sum/float64(width)+eps)
}

func normalise(y, x, w []float32, eps float64) {
	f := rms(x, eps)
	w, x = w[:len(y)], x[:len(y)]
	for j := range y {
		y[j] = float32(float64(w[j]) * float64(x[j]) * f)
	}
}
