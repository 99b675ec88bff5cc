package graphgen

import (
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestSource: every graph checks, a seed gives one graph, and every operation of
// a source appears.
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
