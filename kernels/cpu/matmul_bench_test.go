package cpu

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// BenchmarkMatmul is 1, 16 and 512 tokens of 768 numbers with 3,072 rows of weights,
// which do not fit into a core's cache, by one goroutine.
func BenchmarkMatmul(b *testing.B) {
	const n, k = 3072, 768
	for _, isa := range ISAs() {
		set, err := ForISA(isa)
		if err != nil {
			b.Fatal(err)
		}
		for _, d := range []graph.DType{graph.F32, graph.BF16, graph.F16} {
			for _, tokens := range []int{1, 16, 512} {
				b.Run(fmt.Sprintf("%s/%s/%d", isa, d, tokens), func(b *testing.B) {
					x, w, y := table(graph.F32, tokens, k, k, 0), table(d, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
					fill(&x, func() float32 { return 1 })
					fill(&w, func() float32 { return 1 })
					call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
					for b.Loop() {
						set["matmul"].Run(call, 0, matmulUnits(call))
					}
					b.ReportMetric(2*n*k*float64(tokens)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
