package cpu

import "github.com/krait-ml/krait/kernels"

// shortMatmul is matmul for a weight whose rows are short.
func shortMatmul(c *kernels.Call, lo, hi int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	var buf [matmulCols][kernels.ShortDepth]float64
	var row [kernels.ShortDepth]float64
	for u := lo; u < hi; u++ {
		n := u * matmulCols
		cols := min(matmulCols, w.Rows()-n)
		for j := range cols {
			var line [kernels.ShortDepth]float32
			w.Read(line[:w.Cols], (n+j)*w.Stride)
			toFloat64(buf[j][:], line[:w.Cols])
		}
		for t := range x.Rows() {
			toFloat64(row[:], x.Row(t))
			a, b0, b1, b2, b3 := row[:w.Cols], buf[0][:w.Cols], buf[1][:w.Cols], buf[2][:w.Cols], buf[3][:w.Cols]
			var s [matmulCols]float64
			for k, v := range a {
				s[0] += v * b0[k]
				s[1] += v * b1[k]
				s[2] += v * b2[k]
				s[3] += v * b3[k]
			}
			out := y.Row(t)[n : n+cols]
			for j := range out {
				out[j] = float32(s[j])
			}
		}
	}
}

func toFloat64(to []float64, from []float32) {
	to = to[:len(from)]
	for i, v := range from {
		to[i] = float64(v)
	}
}
