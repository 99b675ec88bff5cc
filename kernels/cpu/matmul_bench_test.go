package cpu

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// BenchmarkMatmul is 1 to 512 tokens of 768 numbers with 3,072 rows of weights, by one
// goroutine. Matrices take turns, so that the weights come from memory.
func BenchmarkMatmul(b *testing.B) {
	const n, k, memory = 3072, 768, 256 << 20
	for _, d := range weightTypes {
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
				b.Run(fmt.Sprintf("%s/%s/%d", isa, d, tokens), func(b *testing.B) {
					x, y := table(graph.F32, tokens, k, k, 0), table(graph.F32, tokens, n, n, 0)
					fill(&x, func() float32 { return 1 })
					call := &kernels.Call{Args: []kernels.Tensor{x, {}}, Results: []kernels.Tensor{y}}
					for i := 0; b.Loop(); i++ {
						call.Args[1] = weights[i%len(weights)]
						runAll(set["matmul"], call)
					}
					calls := float64(b.N) / b.Elapsed().Seconds() / 1e9
					b.ReportMetric(2*n*k*float64(tokens)*calls, "GFLOP/s")
					b.ReportMetric(float64(n*k*d.Bytes())*calls, "GB/s")
				})
			}
		}
	}
}
