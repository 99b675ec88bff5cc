package cpu

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// BenchmarkShort is tokens with 1,536 rows of short weights, as dt_proj has them, by one goroutine.
func BenchmarkShort(b *testing.B) {
	const n = 1536
	for _, k := range []int{48, 160} {
		for _, isa := range ISAs()[1:] {
			set, err := ForISA(isa)
			if err != nil {
				b.Fatal(err)
			}
			for _, tokens := range []int{1, 16, 512} {
				b.Run(fmt.Sprintf("%s/%d/%d", isa, k, tokens), func(b *testing.B) {
					x, w, y := table(graph.F32, tokens, k, k, 0), table(graph.F32, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
					call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
					for b.Loop() {
						runAll(set["matmul"], call)
					}
					b.ReportMetric(float64(2*n*k*tokens)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
