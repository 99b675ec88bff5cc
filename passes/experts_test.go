package passes

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
)

// TestFuseExperts: what stands around experts is one operation with what it can be, of a layer of
// each family.
func TestFuseExperts(t *testing.T) {
	for name, want := range map[string]string{
		"layers.1. jamba": "norm_router add_experts",
		// The network beside the experts reads what is normed before the router, and takes the sum.
		"layers.1. granite-hybrid": "router experts",
		"layers.1. nemotron-h-moe": "sigmoid_router ungated_experts",
		"layers.1. lfm2-moe":       "sigmoid_router add_experts",
		// The shared expert is a mixture of one.
		"layers.0. qwen3-next": "norm_router experts add_experts",
	} {
		layer, golden, _ := strings.Cut(name, " ")
		c, err := checkpoint.Open("../testdata/golden/" + golden)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Compile(c.Graph, Options{Fuse: ForLaunches})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range g.Nodes {
			if n.Op.Class == graph.Compute && strings.HasPrefix(n.Name(), layer) && (strings.HasSuffix(n.Op.Name, "router") || strings.HasSuffix(n.Op.Name, "experts")) {
				got = append(got, n.Op.Name)
			}
		}
		c.Close()
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
