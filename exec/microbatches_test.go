package exec

import (
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestDecodeMicrobatchesOfExperts: each of two stages reads 10 bytes of weights, and 60 for each
// expert that tokens choose, up to 4. Tokens of small batches choose different ones, so that no
// expert is read twice when these are cut; in large batches each microbatch reads all.
//
//   - 2 sequences: one batch takes 2 × (10 + 120) = 260, two microbatches 3 × (10 + 60) = 210.
//   - 4: 2 × (10 + 240) = 500; two 3 × 130 = 390; four 5 × 70 = 350.
//   - 8: 2 × 250 = 500; two 3 × 250 = 750; four 5 × 130 = 650.
//   - 8, of experts that are always read: the same 2 × 250.
func TestDecodeMicrobatchesOfExperts(t *testing.T) {
	chosen := graph.Const(10).Plus(graph.Const(60).Times(graph.AtMost(graph.Tokens, 4)))
	all := graph.Const(10 + 4*60)
	for _, c := range []struct {
		bytes           graph.Poly
		sequences, want int
	}{{chosen, 1, 1}, {chosen, 2, 2}, {chosen, 4, 4}, {chosen, 8, 1}, {all, 4, 1}, {all, 8, 1}} {
		m := Microbatches{stages: 2, moved: []graph.Poly{graph.Const(1), c.bytes}, decoded: map[int]int{}}
		for range 2 { // computed, and looked up
			if got := m.Of(c.sequences, c.sequences); got != c.want {
				t.Errorf("%d sequences by %s bytes: %d microbatches, want %d", c.sequences, c.bytes, got, c.want)
			}
		}
		if len(m.decoded) != 1 {
			t.Errorf("the numbers of microbatches that are kept are %v", m.decoded)
		}
	}
}
