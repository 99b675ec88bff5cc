package cpu

import (
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// BenchmarkLanes is 64 rows of 1536 elements, which fit into a core's cache, by one goroutine.
func BenchmarkLanes(b *testing.B) {
	const rows, n = 64, 1536
	for _, op := range []string{"add", "silu", "softplus", "silu_mul", "neg_exp"} {
		for _, isa := range ISAs() {
			set, err := ForISA(isa)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(op+"/"+isa, func(b *testing.B) {
				args := make([]kernels.Tensor, 2)
				for i := range args {
					args[i] = table(graph.F32, rows, n, n, 0)
					fill(&args[i], func() float32 { return float32(i) - 0.3 })
				}
				if op != "add" && op != "silu_mul" {
					args = args[:1]
				}
				call := &kernels.Call{Args: args, Results: []kernels.Tensor{table(graph.F32, rows, n, n, 0)}}
				for b.Loop() {
					set[op].Run(call, 0, rows)
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/(rows*n/16), "ns/16elements")
				b.ReportMetric(float64(b.N)*rows*n*4*float64(1+len(args))/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
	}
}
