package lowering

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
}

func lower(t tester, text string) []*Schedule {
	t.Helper()
	g, err := graph.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drawGraph draws a partitioned graph with every kind of layout and collective.
func drawGraph(t *rapid.T) *graph.Graph {
	ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
	g := graph.NewGraph("g", graph.PartitionedStage, ranks)
	n := 0
	leaf := func(op string, typ graph.Type) *graph.Value {
		n++
		v, err := g.AddLeaf(op, fmt.Sprint(op, n), typ, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	add := func(op string, a graph.Attrs, args ...*graph.Value) *graph.Value {
		n++
		names := []string{fmt.Sprint("v", n)}
		if op == "all_reduce" && len(args) == 2 {
			names = append(names, fmt.Sprint("w", n))
		}
		node, err := g.Add(op, a, names, args...)
		if err != nil {
			t.Fatal(err)
		}
		return node.Results[0]
	}
	width := graph.Units(6, 1)
	packed := graph.Pack(graph.Field{Name: "a", Size: 6, Unit: 1}, graph.Field{Name: "b", Size: 6, Unit: 1})
	weight := func(out graph.Dim, axis int) *graph.Value {
		typ := graph.TypeOf(graph.F32, out, width)
		if axis >= 0 {
			typ.Layout = graph.SplitOn(axis, len(typ.Dims[axis].Fields))
		}
		return leaf("param", typ)
	}
	by := map[graph.LayoutKind][]*graph.Value{}
	keep := func(v *graph.Value) { k := v.Type.Layout.Kind; by[k] = append(by[k], v) }
	pick := func(k graph.LayoutKind) *graph.Value { return rapid.SampledFrom(by[k]).Draw(t, "value") }
	keep(leaf("input", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), width)))
	keep(add("shard", nil, pick(graph.Replicated)))
	keep(add("matmul", nil, pick(graph.Sharded), weight(width, 1)))
	for range rapid.IntRange(1, 25).Draw(t, "nodes") {
		switch rapid.SampledFrom([]string{"silu", "add", "column", "row", "reduce", "two", "gather", "scatter", "shard", "rows", "term", "packed", "norm", "groups"}).Draw(t, "op") {
		case "silu":
			keep(add("silu", nil, pick(rapid.SampledFrom([]graph.LayoutKind{graph.Replicated, graph.Sharded}).Draw(t, "kind"))))
		case "add":
			k := rapid.SampledFrom([]graph.LayoutKind{graph.Replicated, graph.Sharded, graph.Partial}).Draw(t, "kind")
			keep(add("add", nil, pick(k), pick(k)))
		case "column":
			keep(add("matmul", nil, pick(graph.Replicated), weight(width, 0)))
		case "packed":
			x := add("matmul", nil, pick(graph.Replicated), weight(packed, 0))
			keep(add("field", graph.Attrs{"name": "b"}, x))
			keep(add("field", graph.Attrs{"name": "a"}, x))
			y := add("matmul", nil, pick(graph.Replicated), weight(packed, -1))
			y = add("shard", nil, y)
			keep(add("field", graph.Attrs{"name": "a"}, y))
		case "norm": // two results, of which some are not used
			n++
			w := leaf("param", graph.TypeOf(graph.F32, width))
			node, err := g.Add("add_rmsnorm", graph.Attrs{"eps": 1.0}, []string{fmt.Sprint("s", n), fmt.Sprint("n", n)}, pick(graph.Replicated), pick(graph.Replicated), w)
			if err != nil {
				t.Fatal(err)
			}
			keep(node.Results[rapid.IntRange(0, 1).Draw(t, "result")])
		case "groups": // an operand that is read element by element, and not
			x := pick(graph.Replicated)
			keep(add("group_rms_scale", graph.Attrs{"width": 1, "eps": 1.0}, x, x, leaf("param", graph.TypeOf(graph.F32, width))))
		case "row":
			keep(add("matmul", nil, pick(graph.Sharded), weight(width, 1)))
		case "reduce":
			keep(add("all_reduce", nil, pick(graph.Partial)))
		case "two":
			keep(add("all_reduce", nil, pick(graph.Partial), pick(graph.Partial)))
		case "gather":
			keep(add("all_gather", nil, pick(graph.Sharded)))
		case "scatter":
			keep(add("reduce_scatter", nil, pick(graph.Partial)))
		case "shard":
			keep(add("shard", nil, pick(graph.Replicated)))
		case "rows":
			keep(add("matmul", nil, pick(graph.Replicated), add("shard", graph.Attrs{"axis": 0}, weight(width, -1))))
		case "term":
			keep(add("term", nil, pick(graph.Replicated)))
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "outputs") {
		if err := g.AddOutput(fmt.Sprint("o", i), pick(graph.Replicated)); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func drawSchedules(t *rapid.T) []*Schedule {
	s, err := Lower(drawGraph(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLowered: schedules of random graphs check, on all ranks, and no order that
// the streams may take breaks them.
func TestLowered(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		schedules := drawSchedules(t)
		if err := CheckAll(schedules); err != nil {
			t.Fatalf("%v\n%s", err, schedules[0])
		}
		for _, s := range schedules {
			if why := breaks(s, meant(s), rapid.Uint64().Draw(t, "seed")); why != "" {
				t.Fatalf("%s\n%s", why, s)
			}
		}
	})
}
