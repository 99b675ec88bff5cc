package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
)

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

// BenchmarkSSDScan is a token, a chunk and a prompt through a layer of 24 heads, and
// BenchmarkAttention a prompt and a token after 1,023 through 8 heads, by one goroutine.
// Terms of a chunk's own tokens, and of later tokens, are not counted.
func BenchmarkSSDScan(b *testing.B) {
	for _, tokens := range []int{1, 16, 512} {
		s := ssdCase{lengths: []int{tokens}, heads: 24, groups: 1, size: 64, n: 128, kept: graph.F32, rate: 1, step: 0.1}
		for _, isa := range ISAs() {
			b.Run(fmt.Sprintf("%d/%s", tokens, isa), func(b *testing.B) {
				set, err := ForISA(isa)
				if err != nil {
					b.Fatal(err)
				}
				c := s.call(rand.New(rand.NewPCG(1, 1)))
				b.SetBytes(2 * 4 * int64(s.heads*s.size*s.n)) // a state is read and written
				for b.Loop() {
					set["ssd_scan"].Run(c, 0, s.heads)
				}
				b.ReportMetric(4*float64(s.heads*s.size*s.n*tokens)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	for _, s := range []lookCase{{past: []int{0}, lengths: []int{512}}, {past: []int{1023}, lengths: []int{1}}} {
		s.heads, s.groups, s.size, s.kept = 8, 2, 64, graph.F32
		keys := 0
		for i := range s.lengths[0] {
			keys += s.past[0] + i + 1
		}
		for _, isa := range ISAs() {
			b.Run(fmt.Sprintf("%d after %d/%s", s.lengths[0], s.past[0], isa), func(b *testing.B) {
				set, err := ForISA(isa)
				if err != nil {
					b.Fatal(err)
				}
				for _, pages := range []int{0, 1, 16, 128} { // 0: in one piece
					b.Run(fmt.Sprintf("pages of %d", pages), func(b *testing.B) {
						rng := rand.New(rand.NewPCG(1, 1))
						c := s.call(rng)
						if pages > 0 {
							c = inPages(c, pages, rng)
						}
						for b.Loop() {
							set["attention"].Run(c, 0, s.groups)
						}
						b.ReportMetric(4*float64(keys*s.heads*s.size)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
					})
				}
			})
		}
	}
}
