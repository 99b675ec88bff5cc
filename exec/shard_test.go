package exec_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels/cpu"
	"pgregory.net/rapid"
)

// TestShardedOps runs every operation of the table on 2, 3, 4 and 8 ranks, split
// on each index of its rule that may be split, the rows of a batch included, and with each
// of its linear groups as partial sums, against the same on one rank. Sizes are small enough that
// ranks are uneven and that some have nothing. A case is on two of these numbers, which are drawn
// so that of 10 cases each comes, and with KRAIT_TEST_ALL on all.
func TestShardedOps(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.Class != graph.Compute || op.Rule == nil {
			continue
		}
		for _, index := range indices(op) {
			t.Run(op.Name+"/"+index, func(t *testing.T) {
				prop.Check(t, func(t *rapid.T) {
					c := drawOp(t, op, nil)
					c.compare(t, func(ranks int) *graph.Graph { return c.split(t, ranks, index) })
				})
			})
		}
		if rowLetter(op) != 0 && op.Name != "embedding" { // whose rows are ids, which are whole
			t.Run(op.Name+"/rows", func(t *testing.T) {
				prop.Check(t, func(t *rapid.T) {
					c := drawOp(t, op, nil)
					c.compare(t, func(ranks int) *graph.Graph { return c.rows(t, ranks) })
				})
			})
		}
		for _, group := range op.Linear {
			if op.Name == "dequantize" {
				continue // its operand cannot come from a matmul
			}
			t.Run(fmt.Sprint(op.Name, "/partial", group), func(t *testing.T) {
				prop.Check(t, func(t *rapid.T) {
					c := drawOp(t, op, nil)
					c.compare(t, func(ranks int) *graph.Graph { return c.partial(t, ranks, group) })
				})
			})
		}
	}
}

// leads lists, operand by operand and axis by axis, the letters of a rule that
// ranks may own a range of; nothing for symbols.
func leads(op *graph.Op) [][]string {
	text := strings.ReplaceAll(op.Rule.String(), "*", "t d")
	left, _, _ := strings.Cut(text, "->")
	var out [][]string
	for list := range strings.SplitSeq(left, ",") {
		var axes []string
		for _, axis := range splitAxes(list) {
			lead := ""
			for _, l := range axis {
				if 'a' <= l && l <= 'z' && !strings.ContainsRune("tsol", l) && !strings.Contains(text, string(l)+"!") {
					lead += string(l)
				}
			}
			axes = append(axes, lead)
		}
		out = append(out, axes)
	}
	return out
}

// indices lists the longest leads, without those that a composite walks inside.
func indices(op *graph.Op) []string {
	var out []string
	all := slices.Concat(leads(op)...)
	for _, lead := range all {
		longer := slices.ContainsFunc(all, func(o string) bool { return len(o) > len(lead) && strings.HasPrefix(o, lead) })
		inside := slices.ContainsFunc(all, func(o string) bool { return lead != "" && strings.Contains(o, lead) && o[0] != lead[0] })
		if lead != "" && !longer && !inside && !slices.Contains(out, lead) {
			out = append(out, lead)
		}
	}
	return out
}

// rebuild makes the case's graph again for a number of ranks; operand gives the
// value of operand i, of the type that it has in the whole graph.
func (c *opCase) rebuild(t *rapid.T, ranks int, operand func(g *graph.Graph, i int, leaf *graph.Node) *graph.Value) *graph.Graph {
	g := graph.NewGraph("op", graph.PartitionedStage, ranks)
	whole := c.graph.Nodes[len(c.graph.Nodes)-1]
	var args []*graph.Value
	for i, v := range whole.Args {
		args = append(args, operand(g, i, v.Def))
	}
	names := []string{"result"}
	for _, v := range whole.Results[1:] {
		names = append(names, v.Name)
	}
	y := add(t, g, whole.Op.Name, whole.Attrs, names, args...)
	switch y.Type.Layout.Kind {
	case graph.Partial:
		y = add(t, g, "all_reduce", nil, []string{"y"}, y)
	case graph.Sharded:
		y = add(t, g, "all_gather", nil, []string{"y"}, y)
	}
	if err := g.AddOutput("y", y); err != nil {
		t.Fatal(err)
	}
	return g
}

func add(t *rapid.T, g *graph.Graph, op string, a graph.Attrs, names []string, args ...*graph.Value) *graph.Value {
	n, err := g.Add(op, a, names, args...)
	if err != nil {
		t.Fatalf("%s: %v", op, err)
	}
	return n.Results[0]
}

func addLeaf(t *rapid.T, g *graph.Graph, leaf *graph.Node, typ graph.Type) *graph.Value {
	v, err := g.AddLeaf(leaf.Op.Name, leaf.Name(), typ, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// split is the graph with every operand that carries the index split on it, as
// it is stored or by a shard (which no blocks go through), or covering the groups that
// ranks need. Sometimes the first field of the axis is whole on every rank, where it is not summed.
func (c *opCase) split(t *rapid.T, ranks int, index string) *graph.Graph {
	axes := leads(c.op)
	units := 0
	for i, leaf := range c.graph.Nodes[len(c.graph.Nodes)-1].Args {
		if j := slices.Index(axes[i], index); j >= 0 {
			for _, f := range leaf.Type.Dims[j].Fields {
				units += f.Units()
			}
			break
		}
	}
	_, result, _ := strings.Cut(c.op.Rule.String(), "->")
	summed := result != " *" && !strings.Contains(result, index)
	mixed := !summed && len(index) == 1 && rapid.IntRange(0, 3).Draw(t, "mixed") == 0
	return c.rebuild(t, ranks, func(g *graph.Graph, i int, leaf *graph.Node) *graph.Value {
		typ := leaf.Results[0].Type
		for j, lead := range axes[i] {
			if lead == "" || !strings.HasPrefix(index, lead) {
				continue
			}
			layout := graph.SplitOn(j, len(typ.Dims[j].Fields))
			if mixed {
				layout.Place[0] = graph.Placement{}
			}
			if lead != index {
				layout.Place[0] = graph.Placement{Kind: graph.Cover, Of: units}
			} else if leaf.Op.Name != "state" && !typ.DType.Quantized() && !mixed && rapid.Bool().Draw(t, "shard") {
				return add(t, g, "shard", graph.Attrs{"axis": j}, []string{leaf.Name() + "_part"}, addLeaf(t, g, leaf, typ))
			}
			typ.Layout = layout
		}
		return addLeaf(t, g, leaf, typ)
	})
}

// rowLetter is the letter of the rule that walks rows of the batch and may be cut, 0 if
// there is none.
func rowLetter(op *graph.Op) byte {
	text := strings.ReplaceAll(op.Rule.String(), "*", "t d")
	for _, c := range []byte("to") {
		if strings.Contains(text, string(c)+" ") && !strings.Contains(text, string(c)+"!") {
			return c
		}
	}
	return 0
}

// rows is the graph with what has rows of the batch cut along them, even or by sequence.
func (c *opCase) rows(t *rapid.T, ranks int) *graph.Graph {
	place := rapid.SampledFrom([]string{"even", "sequence"}).Draw(t, "place")
	text := strings.ReplaceAll(c.op.Rule.String(), "*", "t d")
	left, _, _ := strings.Cut(text, "->")
	lists := strings.Split(left, ",")
	return c.rebuild(t, ranks, func(g *graph.Graph, i int, leaf *graph.Node) *graph.Value {
		v := addLeaf(t, g, leaf, leaf.Results[0].Type)
		if strings.TrimSpace(lists[i])[0] != rowLetter(c.op) || v.Type.Dims[0].Sym != graph.Tokens {
			return v
		}
		return add(t, g, "shard", graph.Attrs{"axis": 0, "place": place}, []string{leaf.Name() + "_rows"}, v)
	})
}

// partial is the graph with the operands of a linear group as sums of what ranks have of a matmul.
func (c *opCase) partial(t *rapid.T, ranks int, group []int) *graph.Graph {
	return c.rebuild(t, ranks, func(g *graph.Graph, i int, leaf *graph.Node) *graph.Value {
		typ := leaf.Results[0].Type
		if !slices.Contains(group, i) {
			return addLeaf(t, g, leaf, typ)
		}
		if leaf.Op.Name == "param" { // a vector that all have: a term
			return add(t, g, "term", nil, []string{leaf.Name() + "_term"}, addLeaf(t, g, leaf, typ))
		}
		d := typ.Dims[1]
		name := leaf.Name() + "_w"
		if _, ok := c.params[name]; !ok {
			w := c.values(d.Len()*d.Len(), 0)
			for i := range w { // so that sums are as large as what is summed
				w[i] /= float32(math.Sqrt(float64(d.Len())))
			}
			c.params[name] = graph.ArrayOf(w, d.Len(), d.Len())
		}
		wt := graph.TypeOf(graph.F32, d, d)
		wt.Layout = graph.SplitOn(1, len(d.Fields))
		typ.Layout = wt.Layout
		w, err := g.AddLeaf("param", name, wt, nil)
		if err != nil {
			t.Fatal(err)
		}
		return add(t, g, "matmul", nil, []string{leaf.Name() + "_sum"}, addLeaf(t, g, leaf, typ), w)
	})
}

// compare runs the graph for one rank, and for several, over two batches.
func (c *opCase) compare(t *rapid.T, build func(ranks int) *graph.Graph) {
	const slots = 3
	var engines []*stepper
	share := 0.0
	counts := []int{2, 3, 4, 8}
	if !goldens.All() {
		counts = rapid.Permutation(counts).Draw(t, "ranks")[:2]
	}
	for _, ranks := range append([]int{1}, counts...) {
		g := build(ranks)
		for _, n := range g.Nodes {
			if n.Op.Name == "all_reduce" {
				share = 1e-5
			}
		}
		e := c.engineOf(t, g, cpu.Kernels, slots)
		defer e.Close()
		for range slots {
			if _, err := e.Alloc(); err != nil {
				t.Fatal(err)
			}
		}
		engines = append(engines, e)
	}
	if to, ok := c.graph.Nodes[len(c.graph.Nodes)-1].Attrs["to"]; ok && to != "f32" && share > 0 {
		share = 0.05 // the summands are rounded
	}
	for range 2 {
		var b exec.Batch
		for i, slot := range c.rng.Perm(slots)[:1+c.rng.IntN(slots)] {
			q := exec.Sequence{Slot: slot, Len: 1 + c.rng.IntN(12), Rows: []int{}}
			for range i {
				q.Rows = append(q.Rows, c.rng.IntN(q.Len))
			}
			b.Sequences = append(b.Sequences, q)
		}
		c.fill(&b)
		for i, e := range engines {
			step(t, e, &b)
			same(t, fmt.Sprintf("result of engine %d", i), output(t, e), output(t, engines[0]), share)
			for _, n := range c.graph.Leaves("state") {
				for slot := range slots {
					same(t, n.Name(), stateOf(t, e, slot, n.Name()), stateOf(t, engines[0], slot, n.Name()), 0)
				}
			}
		}
	}
}
