package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// randomRows is a tensor of numbers in [-1, 1).
func randomRows(rows, cols int) *kernels.Tensor {
	t := &kernels.Tensor{DType: graph.F32, Cols: cols, Stride: cols, F32: make([]float32, rows*cols)}
	t.Dims[0] = rows
	for i := range t.F32 {
		t.F32[i] = 2*rand.Float32() - 1
	}
	return t
}

// TestSSDChunk: the matrix form is the recurrence, also where the rate is so large
// that after one token all is gone, and after others not.
func TestSSDChunk(t *testing.T) {
	const size, n = 5, 7
	for _, rate := range []float32{-1, -1e30, -math.MaxFloat32} {
		for q := 1; q <= ssdChunk; q++ {
			dt := randomRows(q, 1)
			for i, v := range dt.F32 {
				if dt.F32[i] = (v + 1) / -rate; i == 2 || i == 5 {
					dt.F32[i] = 3
				}
			}
			h := ssdHead{x: randomRows(q, size), dt: dt, b: randomRows(q, n), c: randomRows(q, n), y: randomRows(q, size),
				size: size, n: n, rate: rate, h: randomRows(size, n).F32}
			other := h
			other.y, other.h = randomRows(q, size), slices.Clone(h.h)
			h.recur(0, q)
			other.chunk(0, q)
			for what, pair := range map[string][2][]float32{"y": {h.y.F32, other.y.F32}, "state": {h.h, other.h}} {
				for i, want := range pair[0] {
					if got := pair[1][i]; !(math.Abs(float64(got-want)) <= 1e-5) {
						t.Fatalf("rate %g, %d tokens: %s %d is %g, want %g", rate, q, what, i, got, want)
					}
				}
			}
		}
	}
}
