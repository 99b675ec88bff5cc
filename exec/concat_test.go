package exec_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// concat has no rule to draw shapes from, so TestOps and TestShardedOps leave it out.

// drawConcat makes a graph that joins 2 to 4 inputs of random widths and units.
func drawConcat(t *rapid.T) *opCase {
	op, _ := graph.Lookup("concat")
	c := &opCase{op: op, params: map[string]graph.Array{}, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
	b := graph.New("op")
	var args []*graph.Value
	for i := range rapid.IntRange(2, 4).Draw(t, "operands") {
		unit := rapid.IntRange(1, 4).Draw(t, "unit")
		width := graph.Units(unit*rapid.SampledFrom(sizes).Draw(t, "units"), unit)
		args = append(args, c.leaf(b, i, "t d", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), width)))
	}
	b.Output("y", b.Concat("y", "a|b|c|d"[:2*len(args)-1], args...))
	var err error
	if c.graph, err = b.Graph(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConcat joins rows with both sets of kernels, and here by hand.
func TestConcat(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		c := drawConcat(t)
		for _, set := range []kernels.Set{cpu.Kernels, reference.Kernels} {
			e := c.engine(t, set, 1)
			defer e.Close()
			slot, err := e.Alloc()
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				tokens := rapid.SampledFrom(sizes).Draw(t, "tokens")
				b := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: tokens, Rows: []int{}}}}
				c.fill(&b)
				step(t, e, &b)
				same(t, "result", output(t, e), c.joined(&b, tokens), 0)
			}
		}
	})
}

// joined is the rows of the batch's inputs, side by side.
func (c *opCase) joined(b *exec.Batch, tokens int) []float32 {
	var all []float32
	for i := range tokens {
		for _, name := range c.inputs {
			n := b.Inputs[name].Shape[1]
			all = append(all, b.Inputs[name].Float32s()[i*n:(i+1)*n]...)
		}
	}
	return all
}

// TestShardedConcat joins values that lie over ranks: all split, those that are
// whole or cover groups beside split ones, and partial sums.
func TestShardedConcat(t *testing.T) {
	check := func(name string, build func(t *rapid.T, c *opCase) func(ranks int) *graph.Graph) {
		t.Run(name, func(t *testing.T) {
			prop.Check(t, func(t *rapid.T) {
				c := drawConcat(t)
				c.compare(t, build(t, c))
			})
		})
	}
	check("split", func(t *rapid.T, c *opCase) func(int) *graph.Graph {
		return c.placed(t, slices.Repeat([]graph.PlaceKind{graph.Split}, len(c.inputs)))
	})
	check("mixed", func(t *rapid.T, c *opCase) func(int) *graph.Graph {
		var kinds []graph.PlaceKind
		for range c.inputs {
			kinds = append(kinds, rapid.SampledFrom([]graph.PlaceKind{graph.Whole, graph.Split, graph.Cover}).Draw(t, "kind"))
		}
		return c.placed(t, kinds)
	})
	check("partial", func(t *rapid.T, c *opCase) func(int) *graph.Graph {
		var all []int
		for i := range c.inputs {
			all = append(all, i)
		}
		return func(ranks int) *graph.Graph { return c.partial(t, ranks, all) }
	})
}

// placed makes the graph with operands that lie so; what is split is so as it is
// given, or by a shard.
func (c *opCase) placed(t *rapid.T, kinds []graph.PlaceKind) func(ranks int) *graph.Graph {
	shared := rapid.IntRange(1, 3).Draw(t, "units that share a group")
	shard := rapid.Bool().Draw(t, "shard")
	return func(ranks int) *graph.Graph {
		return c.rebuild(t, ranks, func(g *graph.Graph, i int, leaf *graph.Node) *graph.Value {
			typ := leaf.Results[0].Type
			place := graph.Placement{Kind: kinds[i]}
			switch place.Kind {
			case graph.Whole:
				return addLeaf(t, g, leaf, typ)
			case graph.Cover:
				place.Of = shared * typ.Dims[1].Fields[0].Units()
			case graph.Split:
				if shard {
					return add(t, g, "shard", nil, []string{fmt.Sprint(leaf.Name(), "_part")}, addLeaf(t, g, leaf, typ))
				}
			}
			typ.Layout = graph.Layout{Kind: graph.Sharded, Axis: 1, Place: []graph.Placement{place}}
			return addLeaf(t, g, leaf, typ)
		})
	}
}
