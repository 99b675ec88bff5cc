package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// BenchmarkSSD is a prompt of 512 tokens through one head of 64 channels and 128
// states, by the recurrence and by chunks in the matrix form.
func BenchmarkSSD(b *testing.B) {
	const tokens, size, n = 512, 64, 128
	random := func(rows, cols int) *kernels.Tensor {
		t := &kernels.Tensor{DType: graph.F32, Cols: cols, Stride: cols, F32: make([]float32, rows*cols)}
		t.Dims[0] = rows
		for i := range t.F32 {
			t.F32[i] = rand.Float32() / 8
		}
		return t
	}
	h := ssdHead{x: random(tokens, size), dt: random(tokens, 1), b: random(tokens, n), c: random(tokens, n), y: random(tokens, size),
		size: size, n: n, rate: -1, h: make([]float32, size*n)}
	for name, run := range map[string]func(t, q int){"recurrent": h.recur, "chunked": h.chunk} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(tokens)
			for b.Loop() {
				for t := 0; t < tokens; t += ssdChunk {
					run(t, ssdChunk)
				}
			}
		})
	}
}
