package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// BenchmarkExperts is 1 to 512 tokens that choose 6 of 64 experts of granite-4.0-h-tiny, by one
// goroutine. No weights stay in a cache.
func BenchmarkExperts(b *testing.B) {
	const experts, top, hidden, width = 64, 6, 512, 1536
	weights := func(rows, cols int) kernels.Tensor {
		w := table(graph.BF16, experts, rows*cols, rows*cols, 0)
		w.Dims[1], w.Dims[2] = rows, cols
		fill(&w, func() float32 { return 1.0 / 64 })
		return w
	}
	args := []kernels.Tensor{{}, {}, weights(hidden, width), weights(hidden, width), weights(width, hidden)}
	for _, isa := range ISAs() {
		set, err := ForISA(isa)
		if err != nil {
			b.Fatal(err)
		}
		for _, tokens := range []int{1, 16, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", isa, tokens), func(b *testing.B) {
				r := rand.New(rand.NewPCG(67, 0))
				x, p := table(graph.F32, tokens, width, width, 0), table(graph.F32, tokens, experts, experts, 0)
				fill(&x, func() float32 { return 1 })
				call := &kernels.Call{Args: args, Results: []kernels.Tensor{table(graph.F32, tokens, width, width, 0)}, Attrs: graph.Attrs{"act": "silu", "top": top}}
				call.Args[0], call.Args[1] = x, p
				for b.Loop() {
					for t := range tokens { // others in each run
						clear(p.Row(t))
						for _, e := range r.Perm(experts)[:top] {
							p.Row(t)[e] = 1.0 / top
						}
					}
					runAll(set["experts"], call)
				}
				b.ReportMetric(float64(2*3*hidden*width*tokens*top)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
