package prove

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/class"
)

// TestPartitionIsTheMinimum: on random graphs, partition compiles what the class
// has a placement for, and nothing else; what merge makes of it is proved, and
// costs what the proof's own search says is the least.
func TestPartitionIsTheMinimum(t *testing.T) {
	graphs := 600
	if goldens.All() {
		graphs = 5000
	}
	compiled := 0
	for seed := range uint64(graphs) {
		o := graphgen.Options{Blocks: seed%4 == 0, Square: seed%3 == 0}
		if seed%2 == 0 {
			o.Ops = []string{"matmul", "matmul", "matmul", "add", "mul", "silu", "bias", "field", "concat", "head_down", "group_rmsnorm"}
		}
		if isMinimum(t, seed, o, "channel", graph.Whole) != nil {
			compiled++
		}
	}
	if compiled < graphs/2 {
		t.Errorf("only %d of %d graphs compile", compiled, graphs)
	}
	t.Logf("%d of %d graphs compile", compiled, graphs)
}

// TestPartitionOfRowsIsTheMinimum is the same where tokens are split between blocks.
func TestPartitionOfRowsIsTheMinimum(t *testing.T) {
	graphs := 300
	if goldens.All() {
		graphs = 3000
	}
	compiled, rows, exchanged, joined := 0, 0, 0, 0
	for seed := range uint64(graphs) {
		o := graphgen.Options{Blocks: true, Plain: true, Nodes: 3 + int(seed%5)}
		if seed%3 > 0 {
			o.Ops = []string{"matmul", "matmul", "matmul", "add", "add", "rmsnorm", "mul", "silu", "bias", "field", "concat", "rms_rows", "experts"}
		}
		strategy, border := "sequence", graph.Even
		if seed%4 == 0 {
			strategy, border = "batch", graph.BySequence
		}
		g := isMinimum(t, seed, o, strategy, border)
		if g == nil {
			continue
		}
		compiled++
		has := func(is func(n *graph.Node) bool) int {
			if slices.ContainsFunc(g.Nodes, is) {
				return 1
			}
			return 0
		}
		rows += has(func(n *graph.Node) bool { return n.Op.Class == graph.Compute && n.Results[0].Type.Layout.ByBatch() })
		exchanged += has(func(n *graph.Node) bool {
			return n.Op.Class == graph.Collective && (n.Args[0].Type.Layout.ByBatch() || n.Results[0].Type.Layout.ByBatch())
		})
		joined += has(func(n *graph.Node) bool {
			return n.Op.Class == graph.Collective && (n.Args[0].Type.Layout.ByBatch() || n.Results[0].Type.Layout.ByBatch()) && len(n.Args) > 1
		})
	}
	if compiled < graphs/2 || rows < graphs/5 || exchanged < graphs/5 || joined < graphs/50 {
		t.Errorf("only %d of %d graphs compile, %d compute rows, %d exchange them, %d several at once", compiled, graphs, rows, exchanged, joined)
	}
	t.Logf("%d of %d graphs compile, %d compute rows, %d exchange them, %d several at once", compiled, graphs, rows, exchanged, joined)
}

// isMinimum partitions a random graph and proves it; nil if the class has no placement.
func isMinimum(t *testing.T, seed uint64, o graphgen.Options, strategy string, border graph.PlaceKind) *graph.Graph {
	t.Helper()
	ranks := 2 + int(seed%7)
	s, err := passes.FindStrategy(strategy)
	if err != nil {
		t.Fatal(err)
	}
	source, err := passes.Compile(graphgen.Source(seed, o), passes.Options{Ranks: ranks, Stop: graph.UnpackedStage})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	g, err := passes.Compile(source, passes.Options{Ranks: ranks, Strategy: s, Stop: graph.PartitionedStage})
	if err != nil {
		if least := total(minimum(source, class.Options{Ranks: ranks, Border: border}, Options{})); least.None == "" || least.Unknown != "" {
			t.Fatalf("seed %d on %d ranks: %v; the class has a placement\n%s", seed, ranks, err, graph.Print(source))
		}
		return nil
	}
	c, err := Prove(source, g, Options{})
	if err != nil {
		t.Fatalf("seed %d on %d ranks: %v\n%s", seed, ranks, err, graph.Print(g))
	}
	least := c.Minimum
	if at := borderOf(g); at != border && at == graph.Whole { // nothing with tokens passes from block to block
		least = total(minimum(source, class.Options{Ranks: ranks, Border: border}, Options{}))
		c.Outside = nil
	} else if at != border {
		t.Fatalf("seed %d: tokens cross borders as %d, not as %d", seed, at, border)
	}
	if c.Collectives != least.Collectives || c.Sent.parts() != least.parts || c.WeightBytes != least.WeightBytes || len(c.Outside) > 0 || least.None+least.Unknown != "" {
		t.Fatalf("seed %d on %d ranks: partition has %d collectives, %d bytes, %d of weights; the minimum is %d, %d, %d\n%s\n%s",
			seed, ranks, c.Collectives, c.SentOne, c.WeightBytes, least.Collectives, least.SentBytes, least.WeightBytes, c, graph.Print(g))
	}
	return g
}
