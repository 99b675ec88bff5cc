package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, kernels.Set{
	"add_rmsnorm":   {Units: kernels.RowUnits, Run: addRMSNorm},
	"conv1d_silu":   {Units: convSiluUnits, Run: convSilu},
	"silu_mul":      {Units: kernels.RowUnits, Run: siluMul},
	"bias_softplus": {Units: kernels.RowUnits, Run: biasSoftplus},
	"add_scaled":    {Units: kernels.RowUnits, Run: addScaled},
})

// The kernels of fused operations give the bits of the operations apart: they
// round where those do, and share their code for what is more than one line.

func addRMSNorm(c *kernels.Call, lo, hi int) {
	w, eps := c.Args[2].Vector(), c.Attrs.Float("eps")
	for i := lo; i < hi; i++ {
		add(c, i, i+1)
		normalise(c.Results[1].Row(i), c.Results[0].Row(i), w, eps)
	}
}

func convSiluUnits(c *kernels.Call) int { return c.Args[4].Rows() * blocks(c.Results[0].Cols) }

func convSilu(c *kernels.Call, lo, hi int) {
	convolve(&c.Results[0], &c.Args[0], &c.Args[1], &c.Args[3], &c.Args[4], lo, hi, c.Args[2].Vector())
}

// addSilu: y = silu(y + b), of a block of channels at most.
func addSilu(y, b []float32) {
	var sum [channelBlock]float32
	for j := range y {
		sum[j] = y[j] + b[j]
	}
	silu(y, sum[:len(y)])
}

// biasSoftplus works by pieces of a row whose sum fits the stack.
func biasSoftplus(c *kernels.Call, lo, hi int) {
	var sum [channelBlock]float32
	for i := lo; i < hi; i++ {
		y, x, b := c.Results[0].Row(i), c.Args[0].Row(i), c.Args[1].Vector()
		for len(y) > 0 {
			n := min(len(y), len(sum))
			for j := range n {
				sum[j] = x[j] + b[j]
			}
			softplus(y[:n], sum[:n])
			y, x, b = y[n:], x[n:], b[n:]
		}
	}
}

func siluMul(c *kernels.Call, lo, hi int) {
	var gate [channelBlock]float32
	for i := lo; i < hi; i++ {
		y, x, b := c.Results[0].Row(i), c.Args[0].Row(i), c.Args[1].Row(i)
		for len(y) > 0 {
			n := min(len(y), len(gate))
			silu(gate[:n], x[:n])
			for j, v := range gate[:n] {
				y[j] = v * b[j]
			}
			y, x, b = y[n:], x[n:], b[n:]
		}
	}
}

// addScaled adds to each len(row)/len(d) neighbours as many times one factor.
func addScaled(c *kernels.Call, lo, hi int) {
	d := c.Args[2].Vector()
	if len(d) == 0 {
		return
	}
	for i := lo; i < hi; i++ {
		y, a, x := c.Results[0].Row(i), c.Args[0].Row(i), c.Args[1].Row(i)
		size := len(y) / len(d)
		for h, f := range d {
			for j := h * size; j < (h+1)*size; j++ {
				y[j] = a[j] + float32(x[j]*f) // the conversion forbids a fused multiply-add
			}
		}
	}
}
