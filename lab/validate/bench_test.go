package validate

import (
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

// BenchmarkRun validates models of published sizes on 4 ranks: each distinct block once.
func BenchmarkRun(b *testing.B) {
	for _, size := range []string{"mamba-2.8b", "mamba2-2.7b", "falcon-h1-0.5b", "zamba2-1.2b", "falcon-mamba-7b", "bamba-9b", "zamba-7b", "jamba-52b"} {
		b.Run(size, func(b *testing.B) {
			g, err := synth.Graph(synth.Options{Like: size})
			if err != nil {
				b.Fatal(err)
			}
			out, err := passes.Compile(g, passes.Options{Ranks: 4, Stop: graph.PartitionedStage})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				r, err := Run(b.Context(), g, out, Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.Log(r)
			}
		})
	}
}
