package operand

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestWide: of a piece of the batch an operand has those rows in whole blocks that the batch has
// there.
func TestWide(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		tokens := 1 + r.IntN(400)
		wide, all := []graph.Run(nil), make([]bool, tokens)
		for at := r.IntN(80); at < tokens; at += 1 + r.IntN(80) {
			n := 1 + r.IntN(tokens-at)
			for i := range n {
				all[at+i] = true
			}
			wide = append(wide, graph.Run{Start: at, Len: n})
			at += n
		}
		first := r.IntN(tokens)
		piece := graph.Run{Start: first, Len: 1 + r.IntN(tokens-first)}
		o := Operand{first: graph.Dim{Sym: graph.Tokens}}
		got := make([]bool, piece.Len)
		for _, x := range o.Wide(nil, &graph.Batch{}, wide, piece) {
			for i := range x.Len {
				got[x.Start+i] = true
			}
		}
		if want := all[piece.Start:piece.End()]; !slices.Equal(got, want) {
			t.Fatalf("of %v rows %+v are wide: %v, want %v", wide, piece, got, want)
		}
	}
	if o := (Operand{first: graph.Dim{Sym: graph.Rows}}); len(o.Wide(nil, &graph.Batch{}, []graph.Run{{Len: 64}}, graph.Run{Len: 64})) > 0 {
		t.Error("rows that were selected are wide")
	}
}
