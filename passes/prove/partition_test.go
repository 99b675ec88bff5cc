package prove

import (
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/passes"
)

// TestPartitionIsTheMinimum: on random graphs, partition compiles what the class
// has a placement for, and nothing else; what merge makes of it is proved, and
// costs what the proof's own search says is the least.
func TestPartitionIsTheMinimum(t *testing.T) {
	graphs := 1200
	if goldens.All() {
		graphs = 5000
	}
	compiled := 0
	for seed := range uint64(graphs) {
		o := graphgen.Options{Blocks: seed%4 == 0, Square: seed%3 == 0}
		if seed%2 == 0 {
			o.Ops = []string{"matmul", "matmul", "matmul", "add", "mul", "silu", "bias", "field", "concat", "head_down", "group_rmsnorm"}
		}
		ranks := 2 + int(seed%7)
		source, err := passes.Compile(graphgen.Source(seed, o), passes.Options{Ranks: ranks, Stop: graph.UnpackedStage})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		g, err := passes.Compile(source, passes.Options{Ranks: ranks, Stop: graph.PartitionedStage})
		if err != nil {
			if least := total(minimum(source, ranks, graph.Whole, Options{})); least.None == "" || least.Unknown != "" {
				t.Fatalf("seed %d on %d ranks: %v; the class has a placement\n%s", seed, ranks, err, graph.Print(source))
			}
			continue
		}
		compiled++
		c, err := Prove(source, g, Options{})
		if err != nil {
			t.Fatalf("seed %d on %d ranks: %v\n%s", seed, ranks, err, graph.Print(g))
		}
		least := c.Minimum
		if c.Collectives != least.Collectives || c.Sent.parts() != least.parts || c.WeightBytes != least.WeightBytes || len(c.Outside) > 0 || least.None+least.Unknown != "" {
			t.Fatalf("seed %d on %d ranks: partition has %d collectives, %d bytes, %d of weights; the minimum is %d, %d, %d\n%s\n%s",
				seed, ranks, c.Collectives, c.SentOne, c.WeightBytes, least.Collectives, least.SentBytes, least.WeightBytes, c, graph.Print(g))
		}
	}
	if compiled < graphs/2 {
		t.Errorf("only %d of %d graphs compile", compiled, graphs)
	}
	t.Logf("%d of %d graphs compile", compiled, graphs)
}
