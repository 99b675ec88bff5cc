package cpu

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"matmul": {Units: matmulUnits, Run: byDepth(shortMatmul, matmul)},
})

const (
	matmulCols  = 4   // rows of the weight, and so columns of the result, per unit
	matmulDepth = 512 // of the inner axis that is widened at a time
)

// shortSums reports whether the sums of a matmul are in float64. Weights in blocks are off by more
// than sums of f32 are: theirs are all long. So are those of experts, which are most of a model.
func shortSums(c *kernels.Call) bool {
	w := &c.Args[1]
	return w.Cols < kernels.ShortDepth && w.Blocks == nil && c.Attrs[long] == nil
}

// byDepth takes one of two kernels by the terms of the sums.
func byDepth(short, long func(c *kernels.Call, lo, hi int)) func(c *kernels.Call, lo, hi int) {
	return func(c *kernels.Call, lo, hi int) {
		if shortSums(c) {
			short(c, lo, hi)
		} else {
			long(c, lo, hi)
		}
	}
}

func matmulUnits(c *kernels.Call) int {
	return (c.Args[1].Rows() + matmulCols - 1) / matmulCols
}

// matmul is x wᵀ. A unit reads its rows of the weight once for all tokens: as they lie when they
// are f32, widened into a small buffer otherwise. Each element of the result is summed along k in
// order, whatever the tiling; without any k it is 0.
func matmul(c *kernels.Call, lo, hi int) {
	w, depth := &c.Args[1], max(1, c.Args[1].Cols)
	if w.DType != graph.F32 {
		depth = matmulDepth
	}
	var buf [matmulCols][matmulDepth]float32
	var rows [matmulCols][]float32
	for u := lo; u < hi; u++ {
		n := u * matmulCols
		cols := min(matmulCols, w.Rows()-n)
		for k := 0; k == 0 || k < w.Cols; k += depth {
			end := min(k+depth, w.Cols)
			for j := range cols {
				at := (n+j)*w.Stride + k
				if w.DType == graph.F32 {
					rows[j] = w.F32[at : at+end-k]
				} else {
					rows[j] = buf[j][:end-k]
					w.Read(rows[j], at)
				}
			}
			panel(c, rows[:cols], n, k)
		}
	}
}

// panel adds x[:, k:] times the rows to the result's columns from n.
func panel(c *kernels.Call, rows [][]float32, n, k int) {
	x, y := &c.Args[0], &c.Results[0]
	end := k + len(rows[0])
	t := 0
	if len(rows) == matmulCols {
		for ; t+1 < x.Rows(); t += 2 {
			y0, y1 := y.Row(t)[n:n+4], y.Row(t + 1)[n:n+4]
			if k == 0 {
				clear(y0)
				clear(y1)
			}
			dot2x4(y0, y1, x.Row(t)[k:end], x.Row(t + 1)[k:end], rows[0], rows[1], rows[2], rows[3])
		}
	}
	for ; t < x.Rows(); t++ {
		out := y.Row(t)[n : n+len(rows)]
		if k == 0 {
			clear(out)
		}
		a := x.Row(t)[k:end]
		if len(rows) == matmulCols {
			dot1x4(out, a, rows[0], rows[1], rows[2], rows[3])
			continue
		}
		for j, b := range rows {
			s := out[j]
			for i, v := range a {
				s += v * b[i]
			}
			out[j] = s
		}
	}
}

// dot2x4 adds the products of two rows with four: eight sums at a time hide the
// latency of the additions.
func dot2x4(y0, y1, a0, a1, b0, b1, b2, b3 []float32) {
	n := len(a0)
	a1, b0, b1, b2, b3 = a1[:n], b0[:n], b1[:n], b2[:n], b3[:n]
	s00, s01, s02, s03 := y0[0], y0[1], y0[2], y0[3]
	s10, s11, s12, s13 := y1[0], y1[1], y1[2], y1[3]
	for i, p := range a0 {
		q := a1[i]
		w := b0[i]
		s00 += p * w
		s10 += q * w
		w = b1[i]
		s01 += p * w
		s11 += q * w
		w = b2[i]
		s02 += p * w
		s12 += q * w
		w = b3[i]
		s03 += p * w
		s13 += q * w
	}
	y0[0], y0[1], y0[2], y0[3] = s00, s01, s02, s03
	y1[0], y1[1], y1[2], y1[3] = s10, s11, s12, s13
}

// dot1x4 is dot2x4 for one row.
func dot1x4(y, a, b0, b1, b2, b3 []float32) {
	n := len(a)
	b0, b1, b2, b3 = b0[:n], b1[:n], b2[:n], b3[:n]
	s0, s1, s2, s3 := y[0], y[1], y[2], y[3]
	for i, p := range a {
		s0 += p * b0[i]
		s1 += p * b1[i]
		s2 += p * b2[i]
		s3 += p * b3[i]
	}
	y[0], y[1], y[2], y[3] = s0, s1, s2, s3
}
