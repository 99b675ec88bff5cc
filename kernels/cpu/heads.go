package cpu

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"head_down": {Units: kernels.RowUnits, Run: headDown},
	"head_up":   {Units: kernels.RowUnits, Run: headUp},
})

// headDown: y[t, h n] = Σ_k w[h n, k] x[t, h k]. A rank that has a part of a
// head's channels adds up that part.
func headDown(c *kernels.Call, lo, hi int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	size := max(1, w.Cols)           // channels of a head
	each := y.Full / (x.Full / size) // results of a head
	for i := lo; i < hi; i++ {
		in, out := x.Row(i), y.Row(i)
		for j := range out {
			col := y.Start() + j
			first := col / each * size
			from, to := kernels.Held(x, first, size)
			if out[j] = 0; from < to {
				row, _ := w.HeldRow(col)
				out[j] = dot(w, row, x.Start()+from-first, in[from:to])
			}
		}
	}
}

// headUp: y[t, h n] = Σ_k w[h n, k] x[t, h k], where ranks own the results.
func headUp(c *kernels.Call, lo, hi int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	size := max(1, w.Cols)
	each := y.Full / (x.Full / size)
	for i := lo; i < hi; i++ {
		in, out := x.Row(i), y.Row(i)
		for j := range out {
			col := y.Start() + j
			from, to := kernels.Held(x, col/each*size, size)
			row, _ := w.HeldRow(col)
			out[j] = dot(w, row, 0, in[from:to])
		}
	}
}

// dot is the product of x with row i of a weight, from column k on.
func dot(w *kernels.Tensor, i, k int, x []float32) (sum float32) {
	at := i*w.Stride + k
	if w.DType == graph.F32 {
		for j, v := range w.F32[at : at+len(x)] {
			sum += v * x[j]
		}
		return sum
	}
	var buf [256]float32
	for len(x) > 0 {
		n := min(len(x), len(buf))
		w.Read(buf[:n], at)
		for j, v := range x[:n] {
			sum += buf[j] * v
		}
		x, at = x[n:], at+n
	}
	return sum
}
