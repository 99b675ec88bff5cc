package validate

import (
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// TestProvedIsRight: random graphs over all operations, with odd units and groups,
// laid over 2 to 8 ranks by partition and in ways drawn at random. Graphs that the proof
// accepts are executed and must be right.
func TestProvedIsRight(t *testing.T) {
	graphs := 250
	if goldens.All() {
		graphs = 2000
	} else if goldens.Few(t) {
		graphs = 80
	}
	compiled, drawn := 0, 0
	for seed := range uint64(graphs) {
		ranks := 2 + int(seed%7)
		model, err := passes.Compile(graphgen.Source(seed, graphgen.Options{Blocks: seed%4 == 0, Square: seed%5 == 0}), passes.Options{Stop: graph.ModelStage})
		if err != nil { // without dead values, which are not in the compiled graph
			t.Fatalf("seed %d: %v", seed, err)
		}
		unpacked, err := passes.Compile(model, passes.Options{Stop: graph.UnpackedStage, Ranks: ranks})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if g, err := passes.Compile(unpacked, passes.Options{Stop: graph.PartitionedStage, Ranks: ranks}); err == nil {
			compiled++
			if _, err := prove.Prove(unpacked, g, prove.Options{}); err != nil {
				t.Fatalf("seed %d on %d ranks: compiled, and not proved: %v\n%s", seed, ranks, err, graph.Print(g))
			}
			executed(t, seed, model, g)
		}
		if g := graphgen.Partition(seed, model, ranks); g != nil {
			if _, err := prove.Prove(model, g, prove.Options{}); err == nil {
				drawn++
				executed(t, seed, model, g)
			}
		}
	}
	t.Logf("%d graphs: %d compiled, %d drawn partitions that are proved", graphs, compiled, drawn)
	if compiled < graphs/2 || drawn < graphs/2 {
		t.Errorf("of %d graphs only %d compile and %d drawn partitions are proved", graphs, compiled, drawn)
	}
}

// executed fails unless execution finds a proved graph to be the model.
func executed(t *testing.T, seed uint64, model, g *graph.Graph) {
	t.Helper()
	r, err := Run(t.Context(), model, g, Options{Seed: seed + 1, run: sparseIf(int(seed))})
	if err != nil {
		t.Fatalf("seed %d on %d ranks: proved, and wrong: %v\n%s\n%s", seed, g.Ranks, err, graph.Print(model), graph.Print(g))
	}
	for _, p := range r.Parts {
		if p.Skipped != "" {
			t.Fatalf("seed %d on %d ranks: not executed: %s\n%s", seed, g.Ranks, p.Skipped, graph.Print(g))
		}
	}
}
