package graphgen

import (
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestSource: every graph checks, a seed gives one graph, and every operation of a source appears.
func TestSource(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(2000) {
		g := Source(seed, Options{Blocks: seed%2 == 0, Square: seed%3 == 0})
		if err := graph.Check(g); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, graph.Print(g))
		}
		if seed < 20 && graph.Print(g) != graph.Print(Source(seed, Options{Blocks: seed%2 == 0, Square: seed%3 == 0})) {
			t.Errorf("seed %d gives two graphs", seed)
		}
		for _, n := range g.Nodes {
			seen[n.Op.Name]++
		}
	}
	for _, name := range sourceOps() {
		if seen[name] < 20 {
			t.Errorf("%s appears %d times", name, seen[name])
		}
	}
}

// TestPartition: what is drawn checks, on several ranks, and often splits something.
func TestPartition(t *testing.T) {
	drawn, split := 0, 0
	for seed := range uint64(1000) {
		g := Partition(seed, Source(seed, Options{}), 2+int(seed%7))
		if g == nil {
			continue
		}
		drawn++
		if err := graph.Check(g); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, graph.Print(g))
		}
		for _, n := range g.Nodes {
			if n.Op.Class == graph.Compute && n.Results[0].Type.Layout.Kind != graph.Replicated {
				split++
				break
			}
		}
	}
	if drawn < 500 || split < 400 {
		t.Errorf("%d of 1000 are drawn, %d split something", drawn, split)
	}
}
