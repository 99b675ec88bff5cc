package exec

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestWide: a row is wide exactly where the block of its token is whole in the step.
func TestWide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 64))
	for range 300 {
		var w Work
		var want, got []bool
		for range 1 + r.IntN(5) {
			past, tokens := r.IntN(3)*r.IntN(70), 1+r.IntN(3)*r.IntN(100)
			w.addWide(len(want), past, tokens)
			for p := past; p < past+tokens; p++ {
				first := p / graph.PartBlock * graph.PartBlock
				want = append(want, first >= past && first+graph.PartBlock <= past+tokens)
			}
		}
		got = make([]bool, len(want))
		end := -1
		for _, x := range w.Wide {
			if x.Start <= end || x.Len < 1 {
				t.Fatalf("runs %v are not apart", w.Wide)
			}
			for end = x.Start; end < x.End(); end++ {
				got[end] = true
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v are wide, want %v", got, want)
		}
	}
}
