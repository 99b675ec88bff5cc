package cpu

import "testing"

// BenchmarkSSD is a prompt of 512 tokens through one head of 64 channels and 128
// states, by the recurrence and by chunks in the matrix form.
func BenchmarkSSD(b *testing.B) {
	const tokens, size, n = 512, 64, 128
	dt := randomRows(tokens, 1)
	for i, v := range dt.F32 {
		dt.F32[i] = (v + 1) / 16
	}
	h := ssdHead{x: randomRows(tokens, size), dt: dt, b: randomRows(tokens, n), c: randomRows(tokens, n), y: randomRows(tokens, size),
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
