package passes_test

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// BenchmarkGoldens compiles the graph of every golden checkpoint to each stage and lowers it; on
// four ranks it proves the partitioned one, too.
func BenchmarkGoldens(b *testing.B) {
	var models []*graph.Graph
	for _, dir := range goldens.Folders(b, "..") {
		_, g, err := checkpoint.Describe(dir)
		if err != nil {
			b.Fatal(err)
		}
		models = append(models, g)
	}
	for _, ranks := range []int{1, 4} {
		b.Run(fmt.Sprint("ranks=", ranks), func(b *testing.B) {
			for b.Loop() {
				for _, g := range models {
					compileAndProve(b, g, ranks)
				}
			}
		})
	}
}

func compileAndProve(b *testing.B, g *graph.Graph, ranks int) {
	var last *graph.Graph
	for _, stage := range []graph.Stage{graph.UnpackedStage, graph.PartitionedStage, graph.FusedStage} {
		next, err := passes.Compile(g, passes.Options{Ranks: ranks, Stop: stage})
		if err == nil && stage == graph.PartitionedStage && ranks > 1 {
			_, err = prove.Prove(last, next, prove.Options{})
		}
		if err != nil {
			b.Fatal(err)
		}
		last = next
	}
	if _, err := lowering.Lower(last); err != nil {
		b.Fatal(err)
	}
}
