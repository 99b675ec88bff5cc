package passes_test

import (
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// TestAcross: every family compiles to a mesh of two axes, and its text is the same graph.
func TestAcross(t *testing.T) {
	families(t, func(t *testing.T, g *graph.Graph) {
		m := graph.Mesh{graph.TP: 2, graph.CP: 2}
		again(t, compile(t, g, passes.Options{Ranks: m.Ranks(), Mesh: m}))
	})
}

// TestProveAcross: what comes of every family on a mesh is proved along each axis, with the fewest
// collectives.
func TestProveAcross(t *testing.T) {
	families(t, func(t *testing.T, g *graph.Graph) {
		m := graph.Mesh{graph.TP: 2, graph.CP: 2}
		o := passes.Options{Ranks: m.Ranks(), Mesh: m, Stop: graph.UnpackedStage}
		source := compile(t, g, o)
		o.Stop = graph.PartitionedStage
		c, err := prove.Prove(source, compile(t, source, o), prove.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Collectives != c.Minimum.Collectives || len(c.Outside) > 0 || c.Minimum.None+c.Minimum.Unknown != "" || len(c.Axes) != 2 {
			t.Errorf("not the minimum:\n%s", c.Summary())
		}
	})
}

// TestProveAcrossRounded: what is rounded to travel along one axis is exact along the other.
func TestProveAcrossRounded(t *testing.T) {
	_, g, err := checkpoint.Describe("../testdata/golden/jamba")
	if err != nil {
		t.Fatal(err)
	}
	m := graph.Mesh{graph.TP: 2, graph.CP: 2}
	o := passes.Options{Ranks: m.Ranks(), Mesh: m, Stop: graph.UnpackedStage}
	source := compile(t, g, o)
	if o.Quantize, err = passes.ParseQuantize("fp16"); err != nil {
		t.Fatal(err)
	}
	o.Stop = graph.PartitionedStage
	c, err := prove.Prove(source, compile(t, source, o), prove.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Exact || c.Axes[0].Exact || !c.Axes[1].Exact {
		t.Errorf("exact: %v, along tp %v, along cp %v; want it along cp alone", c.Exact, c.Axes[0].Exact, c.Axes[1].Exact)
	}
}
