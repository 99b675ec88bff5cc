package prove

import (
	"fmt"
	"slices"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes/class"
)

// TestSearchAgreesWithBruteForce: on random small graphs, trying every layout of
// every value, and every conversion on the way to every use, finds no less than
// the search does, and finds that much.
func TestSearchAgreesWithBruteForce(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		g := randomSource(t)
		ranks := rapid.SampledFrom([]int{2, 3}).Draw(t, "ranks")
		border := rapid.SampledFrom([]graph.PlaceKind{graph.Whole, graph.Even}).Draw(t, "border")
		m := minimum(g, class.Options{Ranks: ranks, Border: border}, Options{})[""]
		b := &brute{ranks: ranks, border: border, nodes: class.Sections(g, class.Options{Ranks: ranks})[0].Nodes, outputs: g.Outputs, shares: class.Sharing(g.Nodes),
			copies: map[*graph.Value][]copied{}, limit: m.Collectives, bound: m.None == ""}
		for _, n := range g.Leaves("input") {
			b.copies[n.Results[0]] = []copied{{}}
		}
		b.node(0)
		got := fmt.Sprint(b.found, b.best)
		want := fmt.Sprint(m.None == "", [3]int64{int64(m.Collectives), m.parts, m.WeightBytes})
		if m.None != "" {
			want = fmt.Sprint(false, b.best)
		}
		if got != want {
			t.Fatalf("on %d ranks the search finds %s (%v, %s), brute force %s in\n%s", ranks, want, m.Launches, m.None, got, graph.Print(g))
		}
	})
}

// randomSource is a graph of a few random operations on axes with and without units.
func randomSource(t *rapid.T) *graph.Graph {
	b := graph.New("random")
	g, _ := b.Graph()
	g.Stage = graph.UnpackedStage
	dims := []graph.Dim{graph.Size(4), graph.Units(4, 1), graph.Units(6, 2), graph.Units(3, 3),
		graph.Pack(graph.Field{Name: "a", Size: 4, Unit: 1}, graph.Field{Name: "b", Size: 2, Unit: 1})}
	dim := func(name string) graph.Dim { return rapid.SampledFrom(dims).Draw(t, name) }
	activation := func(d graph.Dim) graph.Type { return graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), d) }
	values := []*graph.Value{b.Input("x", activation(dim("x"))), b.Input("y", activation(dim("y")))}
	seg := b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		x := rapid.SampledFrom(values).Draw(t, "operand")
		d, name := x.Type.Dims[1], fmt.Sprint("v", i)
		param := func(dims ...graph.Dim) *graph.Value { return b.Param(name+"_w", graph.TypeOf(graph.F32, dims...), nil) }
		switch kind := rapid.SampledFrom([]string{"matmul", "matmul", "matmul", "tied", "add", "mul", "silu", "bias", "norm", "field", "scan"}).Draw(t, "kind"); kind {
		case "matmul":
			x = b.MatMul(name, x, param(dim("out"), d))
		case "tied": // a parameter with two uses
			w := param(d, d)
			x = b.MatMul(name, b.MatMul(name+"_1", x, w), w)
		case "add", "mul":
			y := x
			for _, v := range values {
				if v != x && v.Type.Equal(x.Type) {
					y = v
				}
			}
			x = b.Apply(name, kind, nil, x, y)[0]
		case "silu":
			x = b.Map(name, kind, x)
		case "bias":
			x = b.Bias(name, x, param(d))
		case "norm":
			x = b.RMSNorm(name, x, nil, 1e-5)
		case "field":
			if len(d.Fields) > 1 {
				x = b.Apply(name, "field", graph.Attrs{"name": "a"}, x)[0]
			} else {
				x = b.Map(name, "silu", x)
			}
		case "scan": // four channels in two groups
			w := b.Param(name+"_bw", graph.TypeOf(graph.F32, graph.Units(4, 2), d), nil)
			groups := b.MatMul(name+"_b", x, w)
			u := b.MatMul(name+"_u", x, param(graph.Units(4, 1), d))
			x = b.SelectiveScan(name, u, u, b.Param(name+"_a", graph.TypeOf(graph.F32, graph.Units(4, 1), graph.Size(2)), nil), groups, groups,
				b.State(name+"_h", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Units(4, 1), graph.Size(2))), seg)
		}
		values = append(values, x)
	}
	b.Output("out", values[len(values)-1])
	if _, err := b.Graph(); err != nil {
		t.Fatal(err)
	}
	return g
}

// copied is a copy of a value: how it lies, and the joined launches it comes from.
type copied struct {
	layout graph.Layout
	after  uint // their bits
	term   bool // partial, but a whole value
}

// joined is a collective that may be one with others of its kind, and those that it comes from.
type joined struct {
	kind  string
	after uint
}

// brute tries everything.
type brute struct {
	ranks   int
	border  graph.PlaceKind
	nodes   []*graph.Node
	outputs []graph.Output
	shares  []class.Share
	copies  map[*graph.Value][]copied
	joined  []joined // launches that may be one with others
	cost    [3]int64

	found, bound bool
	limit        int      // collectives, if bound
	best         [3]int64 // collectives, bytes sent times ranks, weight bytes
}

// launches is the least number of launches for those that may be joined, over all ways
// to give each the number of its launch.
func (b *brute) launches() int64 {
	best := len(b.joined)
	at := make([]int, len(b.joined))
	var rest func(i int)
	rest = func(i int) {
		if i == len(at) {
			used := slices.Clone(at)
			slices.Sort(used)
			best = min(best, len(slices.Compact(used)))
			return
		}
		for at[i] = range len(at) {
			ok := true
			for j := range i {
				ok = ok && (b.joined[i].after&(1<<j) == 0 || at[j] < at[i]) && (b.joined[i].kind == b.joined[j].kind || at[j] != at[i])
			}
			if ok {
				rest(i + 1)
			}
		}
	}
	rest(0)
	return int64(best)
}

// node tries every way to compute node i and all that follow.
func (b *brute) node(i int) {
	if i == len(b.nodes) {
		b.output(0)
		return
	}
	b.operand(b.nodes[i], nil, func(chosen []copied) {
		n := b.nodes[i]
		layouts := make([]graph.Layout, len(chosen))
		var after uint
		partial, joined := false, false
		for j, c := range chosen {
			layouts[j] = c.layout
			after |= c.after
			if c.layout.Kind == graph.Partial {
				partial, joined = true, joined || !c.term
			}
		}
		out, err := graph.LayoutsFor(n)(layouts, b.ranks)
		if err != nil || partial && !joined {
			return
		}
		for j, v := range n.Results {
			if !class.Owned(laid(v, out[j]), false) && !class.InRows(b.border, laid(v, out[j])) || !class.Spread(b.border, n, v, out[j]) {
				return
			}
		}
		for _, p := range n.Op.States {
			if !out[p.Result].Equal(layouts[p.Operand]) {
				return
			}
		}
		for j, v := range n.Results {
			b.copies[v] = []copied{{layout: out[j], after: after}}
		}
		b.node(i + 1)
		for _, v := range n.Results {
			delete(b.copies, v)
		}
	})
}

func laid(v *graph.Value, l graph.Layout) graph.Type {
	return graph.Type{DType: v.Type.DType, Dims: v.Type.Dims, Layout: l}
}

// operand chooses a copy for each operand that is left.
func (b *brute) operand(n *graph.Node, chosen []copied, then func([]copied)) {
	if len(chosen) == len(n.Args) {
		then(chosen)
		return
	}
	v := n.Args[len(chosen)]
	b.copy(v, 2, func(c copied) { b.operand(n, append(slices.Clone(chosen), c), then) })
}

// copy tries every existing copy of v, and those that at most steps conversions make.
func (b *brute) copy(v *graph.Value, steps int, then func(copied)) {
	leaf := v.Def.Op.Name == "param" || v.Def.Op.Name == "state"
	if leaf && b.copies[v] == nil {
		for _, l := range class.Placements(graph.Whole, v.Type, b.shares) {
			w := int64(0)
			if v.Def.Op.Name == "param" {
				w = class.WeightBytes(v.Type, l, b.ranks)
			}
			b.cost[2] += w
			b.copies[v] = []copied{{layout: l}}
			b.copy(v, steps, then)
			delete(b.copies, v)
			b.cost[2] -= w
		}
		return
	}
	for _, c := range b.copies[v] {
		b.from(v, c, leaf, steps, then)
	}
}

// from tries a copy, and what conversions make of it.
func (b *brute) from(v *graph.Value, c copied, leaf bool, steps int, then func(copied)) {
	then(c)
	if steps > 0 {
		b.convert(v, c, leaf, func(made copied) { b.from(v, made, leaf, steps-1, then) })
	}
}

// convert adds every copy that one conversion makes of c.
func (b *brute) convert(v *graph.Value, c copied, leaf bool, then func(copied)) {
	try := func(made copied, kind string) {
		if slices.ContainsFunc(b.copies[v], func(o copied) bool { return o.layout.Equal(made.layout) }) || made.layout.Kind == graph.Sharded && !class.Owned(laid(v, made.layout), true) && !class.InRows(b.border, laid(v, made.layout)) {
			return
		}
		before, launches, cost := b.copies[v], b.joined, b.cost
		if kind == "all_reduce" || kind != "" && (c.layout.ByBatch() || made.layout.ByBatch()) {
			made.after |= 1 << len(b.joined)
			b.joined = append(slices.Clone(b.joined), joined{kind, c.after})
		} else if kind != "" {
			b.cost[0]++
		}
		if kind != "" {
			op, _ := graph.Lookup(kind)
			b.cost[1] += sent(op, v.Type, b.ranks).parts()
		}
		if !b.bound || b.cost[0]+b.launches() <= int64(b.limit) {
			b.copies[v] = append(slices.Clone(before), made)
			then(made)
		}
		b.copies[v], b.joined, b.cost = before, launches, cost
	}
	kind := c.layout.Kind
	if kind == graph.Replicated && class.IsTerm(b.border, v.Type) {
		try(copied{graph.Layout{Kind: graph.Partial}, c.after, true}, "")
	}
	if leaf || len(v.Type.Dims) < 2 {
		return
	}
	if kind == graph.Partial && !c.term {
		try(copied{after: c.after}, "all_reduce")
	}
	if kind == graph.Sharded {
		try(copied{after: c.after}, "all_gather")
	}
	for _, l := range []graph.Layout{graph.SplitOn(1, len(v.Type.Dims[1].Fields)), class.AtBorder(b.border, v.Type)} {
		if l.Kind != graph.Sharded {
			continue
		}
		split := copied{l, c.after, false}
		if kind == graph.Replicated {
			try(split, "")
		}
		if kind == graph.Partial && !c.term {
			try(split, "reduce_scatter")
		}
	}
}

// output makes the outputs whole.
func (b *brute) output(i int) {
	if i < len(b.outputs) {
		b.copy(b.outputs[i].Value, 1, func(c copied) {
			if c.layout.Kind == graph.Replicated {
				b.output(i + 1)
			}
		})
		return
	}
	total := [3]int64{b.cost[0] + b.launches(), b.cost[1], b.cost[2]}
	if !b.found || slices.Compare(total[:], b.best[:]) < 0 {
		b.found, b.best = true, total
	}
}
