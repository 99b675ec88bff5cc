package graphgen

import (
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
		"experts act":  {"silu", "gelu", "gelu_tanh", "relu"},
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
