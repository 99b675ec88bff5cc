package graphgen

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestAttr: what is drawn of an attribute is what its row allows, from the least to
// the most, and every text.
func TestAttr(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	size := func(byte) int { return 6 }
	for name, want := range map[string][]any{
		"router top":   {1, 2, 3, 4, 5, 6},
		"router norm":  {0, 1},
		"rotary dims":  {0, 2, 4, 6},
		"rotary theta": {100.0},
		"rmsnorm eps":  {0.5},
		"experts act":  {"silu", "gelu", "gelu_tanh", "relu", "relu2"},
		"quantize to":  {"f32", "f16", "bf16"},
	} {
		op, attr, _ := strings.Cut(name, " ")
		row, _ := graph.Lookup(op)
		a := row.Attrs[slices.IndexFunc(row.Attrs, func(a graph.Attr) bool { return a.Name == attr })]
		seen := map[any]bool{}
		for range 200 {
			seen[Attr(a, size, r.IntN)] = true
		}
		for _, v := range want {
			if !seen[v] {
				t.Errorf("%s is never %v", name, v)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%s is drawn as %v, want %v", name, seen, want)
		}
	}
}

// TestAttrIsLegal draws every attribute of the table, and some that no row has, for
// letters of sizes from 1, and holds what is drawn against what the row says.
func TestAttrIsLegal(t *testing.T) {
	inf := math.Inf(1)
	attrs := []graph.Attr{
		{Name: "bounded", Kind: graph.FloatAttr, Legal: graph.Legal{Above: true, Max: 0.25}},
		{Name: "below 0", Kind: graph.FloatAttr, Legal: graph.Legal{Min: -3, Max: -1}},
		{Name: "one value", Kind: graph.FloatAttr, Legal: graph.Legal{Min: 2, Max: 2}},
		{Name: "steps", Kind: graph.IntAttr, Legal: graph.Legal{Min: 1, Max: 13, Step: 3}},
		{Name: "steps above", Kind: graph.IntAttr, Legal: graph.Legal{Min: 4, Above: true, Max: inf, Step: 4}},
		{Name: "fives of a letter", Kind: graph.IntAttr, Legal: graph.Legal{Min: -7, MaxOf: 'p', Step: 5}},
	}
	for _, op := range graph.Ops() {
		attrs = append(attrs, op.Attrs...)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, a := range attrs {
		for n := 1; n < 12; n++ {
			size := func(byte) int { return n }
			for range 40 {
				if v := Attr(a, size, r.IntN); !legal(a, n, v) {
					t.Fatalf("%s is drawn as %v, where letters are %d: %+v", a.Name, v, n, a.Legal)
				}
			}
		}
	}
}

// legal says what a row means by its fields.
func legal(a graph.Attr, size int, v any) bool {
	l := a.Legal
	most := l.Max
	if l.MaxOf != 0 {
		most = float64(size)
	}
	between := func(x float64) bool { return l.Any() || x >= l.Min && x <= most && (x != l.Min || !l.Above) }
	switch v := v.(type) {
	case int:
		return a.Kind == graph.IntAttr && between(float64(v)) && (l.Step == 0 || v%l.Step == 0)
	case float64:
		return a.Kind == graph.FloatAttr && between(v)
	case string:
		return a.Kind == graph.StringAttr && (l.OneOf == nil || slices.Contains(l.OneOf, v))
	}
	return a.Default == nil && v == nil && a.Kind == graph.StringAttr && l.OneOf == nil // what must be given, and anything may be
}
