package passes_test

import (
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

// TestAcross: every family compiles to a mesh of two axes, and its text is the same graph.
func TestAcross(t *testing.T) {
	families(t, func(t *testing.T, g *graph.Graph) {
		m := graph.Mesh{graph.TP: 2, graph.CP: 2}
		again(t, compile(t, g, passes.Options{Ranks: m.Ranks(), Mesh: m}))
	})
}
