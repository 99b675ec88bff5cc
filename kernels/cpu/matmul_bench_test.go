package cpu

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// BenchmarkMatmul is 1 to 512 tokens with 3,072 rows of weights, by one goroutine. Matrices take
// turns, so that the weights come from memory.
func BenchmarkMatmul(b *testing.B) {
	const n, memory = 3072, 256 << 20
	for i := range 2 * len(weightTypes) {
		d, k := weightTypes[i/2], []int{768, 2048}[i%2]
		var weights []kernels.Tensor
		for range memory / (n * k * d.Bytes()) {
			w := table(d, n, k, k, 0)
			fill(&w, func() float32 { return 1 })
			weights = append(weights, w)
		}
		for _, isa := range ISAs() {
			set, err := ForISA(isa)
			if err != nil {
				b.Fatal(err)
			}
			for _, tokens := range []int{1, 2, 6, 16, 64, 512} {
				b.Run(fmt.Sprintf("%s/%s/%d/%d", isa, d, k, tokens), func(b *testing.B) {
					x, y := table(graph.F32, tokens, k, k, 0), table(graph.F32, tokens, n, n, 0)
					fill(&x, func() float32 { return 1 })
					call := &kernels.Call{Args: []kernels.Tensor{x, {}}, Results: []kernels.Tensor{y}}
					for i := 0; b.Loop(); i++ {
						call.Args[1] = weights[i%len(weights)]
						runAll(set["matmul"], call)
					}
					calls := float64(b.N) / b.Elapsed().Seconds() / 1e9
					b.ReportMetric(float64(2*n*k*tokens)*calls, "GFLOP/s")
					b.ReportMetric(float64(n*k*d.Bytes())*calls, "GB/s")
				})
			}
		}
	}
}
