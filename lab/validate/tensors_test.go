package validate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// drawType is a value or parameter of odd sizes, split in some way.
func drawType(t *rapid.T) graph.Type {
	var dims []graph.Dim
	for i := range rapid.IntRange(1, 4).Draw(t, "axes") {
		if i == 0 && rapid.Bool().Draw(t, "symbol") {
			dims = append(dims, graph.Symbol(graph.Tokens))
			continue
		}
		var fields []graph.Field
		for k := range rapid.IntRange(1, 3).Draw(t, "fields") {
			unit := rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "unit")
			fields = append(fields, graph.Field{Name: string(rune('a' + k)), Size: max(unit, 1) * rapid.IntRange(1, 5).Draw(t, "units"), Unit: unit})
		}
		if len(fields) == 1 {
			fields[0].Name = ""
		}
		dims = append(dims, graph.Pack(fields...))
	}
	typ := graph.TypeOf(graph.F32, dims...)
	axis := rapid.IntRange(0, len(dims)-1).Draw(t, "axis")
	switch {
	case dims[axis].Sym != 0:
	case rapid.IntRange(0, 4).Draw(t, "partial") == 0:
		typ.Layout.Kind = graph.Partial
	default:
		typ.Layout = graph.SplitOn(axis, len(dims[axis].Fields))
		for i, f := range dims[axis].Fields {
			switch rapid.IntRange(0, 2).Draw(t, "place") {
			case 0:
				typ.Layout.Place[i] = graph.Placement{}
			case 1:
				typ.Layout.Place[i] = graph.Placement{Kind: graph.Cover, Of: f.Units() * rapid.IntRange(1, 3).Draw(t, "of")}
			}
		}
	}
	return typ
}

// TestCut: what a rank holds is, element by element, what the extents say; cut and compared it is
// right; put together it is the whole; and one element that differs, or that no rank has, is seen.
func TestCut(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		typ, ranks := drawType(t), rapid.SampledFrom([]int{1, 2, 3, 4, 8}).Draw(t, "ranks")
		g := graph.NewGraph("g", graph.PartitionedStage, ranks)
		v, err := g.AddLeaf("input", "x", typ, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(3, short, g)
		whole, err := b.contents(v)
		if err != nil {
			t.Fatal(err)
		}
		m := (&runner{source: g, seed: 3, batch: b, lot: short}).machine(g)
		if err := m.give(v); err != nil {
			t.Fatal(err)
		}
		parts := m.values[v]
		if typ.Layout.Kind != graph.Partial {
			for r := range parts {
				if want := held(&whole, typ, ranks, r); !slices.Equal(parts[r].F64, want) {
					t.Fatalf("%s: rank %d of %d has %v, want %v of %v", typ, r, ranks, parts[r].F64, want, whole.F64)
				}
			}
		}
		if d := compare(short, typ, ranks, parts, &whole); d.far > 1e-15 || d.wrong != "" {
			t.Fatalf("%s on %d ranks: %+v", typ, ranks, d)
		}
		if typ.Layout.Kind == graph.Sharded {
			again := whole
			again.F64 = make([]float64, len(whole.F64))
			for r := range parts {
				gather(short, &again, &parts[r], typ, ranks, r)
			}
			if !slices.Equal(again.F64, whole.F64) {
				t.Fatalf("%s on %d ranks: %v, want %v", typ, ranks, again.F64, whole.F64)
			}
		}
		r := rapid.IntRange(0, ranks-1).Draw(t, "rank")
		if n := len(parts[r].F64); n > 0 {
			parts[r].F64[rapid.IntRange(0, n-1).Draw(t, "element")] += 1
			d := compare(short, typ, ranks, parts, &whole)
			if want := map[bool]int{true: -1, false: r}[typ.Layout.Kind == graph.Partial]; d.far < 0.1 || d.rank != want {
				t.Fatalf("%s on %d ranks: rank %d is wrong: %+v", typ, ranks, r, d)
			}
		}
	})
}

// held walks the whole element by element.
func held(whole *kernels.Tensor, t graph.Type, ranks, rank int) []float64 {
	var out []float64
	runs := t.Extents(nil, ranks, rank)
	var along []int // of the sharded axis, in the order in which the rank has them
	for _, r := range runs {
		for i := range r.Len {
			along = append(along, r.Start+i)
		}
	}
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis == len(t.Dims) {
			out = append(out, whole.F64[at])
			return
		}
		n := whole.Dims[axis]
		if runs != nil && axis == t.Layout.Axis {
			for _, i := range along {
				walk(axis+1, at*n+i)
			}
			return
		}
		for i := range n {
			walk(axis+1, at*n+i)
		}
	}
	walk(0, 0)
	return out
}

// TestUncovered: what no rank holds is an error, whatever the others have.
func TestUncovered(t *testing.T) {
	typ := graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Units(6, 2))
	typ.Layout = graph.SplitOn(1, 1)
	v := &graph.Value{Name: "x", Type: typ, Def: &graph.Node{Op: &graph.Op{}}}
	whole, _ := describe(short, v, graph.TypeOf(graph.F32, typ.Dims...), 1, 0)
	allocate(&whole, typ)
	var parts []kernels.Tensor
	for r := range 2 { // of three
		x, _ := describe(short, v, typ, 3, r)
		allocate(&x, typ)
		parts = append(parts, x)
	}
	if d := compare(short, typ, 3, parts, &whole); d.text(3) != "no rank has element 4 of row 0" {
		t.Errorf("%+v", d)
	}
}

// TestTakeField: fields of what a rank holds, on every axis.
func TestTakeField(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		typ, ranks := drawType(t), rapid.SampledFrom([]int{1, 2, 3, 8}).Draw(t, "ranks")
		typ.Layout.Kind %= graph.Partial
		for axis, d := range typ.Dims {
			if len(d.Fields) < 2 {
				continue
			}
			first := rapid.IntRange(0, len(d.Fields)-1).Draw(t, "first")
			fields := d.Fields[first:rapid.IntRange(first+1, len(d.Fields)).Draw(t, "last")]
			var names []string
			for _, f := range fields {
				names = append(names, f.Name)
			}
			g := graph.NewGraph("g", graph.PartitionedStage, ranks)
			x, _ := g.AddLeaf("input", "x", typ, nil)
			n, err := g.Add("field", graph.Attrs{"name": strings.Join(names, "|"), "axis": axis}, []string{"y"}, x)
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("graph \"g\" stage=model ranks=1\ninput %%x : %s\n%%y = field %%x {name=\"%s\" axis=%d}\noutput y = %%y\n",
				graph.TypeOf(graph.F32, typ.Dims...), strings.Join(names, "|"), axis)
			source, err := graph.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.AddOutput("y", n.Results[0]); err != nil {
				t.Fatal(err)
			}
			r, err := newRunner(source, g, Options{})
			if err != nil {
				t.Fatal(err)
			}
			p := Part{}
			if err := r.part(t.Context(), r.sections()[0], &p); err != nil || p.Difference != 0 || p.Skipped != "" || p.Values != 1 {
				t.Fatalf("%s\n%s: %+v, %v", text, typ, p, err)
			}
		}
	})
}
