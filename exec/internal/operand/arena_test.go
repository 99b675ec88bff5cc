package operand

import (
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// TestArenaIsThePlan: what is allocated is what the plan says, of regions that repeat per
// token, sequence and row, and per one of a share of these.
func TestArenaIsThePlan(t *testing.T) {
	const ranks = 3
	s := &lowering.Schedule{Ranks: ranks, PieceTokens: 4}
	for space := lowering.PerToken; space <= lowering.Fixed; space++ {
		s.Bytes[space] = 64 << space
	}
	for _, z := range []graph.Sizes{{}, {Tokens: 1, Seqs: 1, Rows: 1}, {Tokens: 7, Seqs: 4, Rows: 5, Largest: 6}, {Tokens: 9, Seqs: 3, Rows: 2}} {
		var planned int64
		for space := lowering.PerToken; space <= lowering.Fixed; space++ {
			planned += s.Count(space).At(z) * s.Bytes[space]
			b := &lowering.Buffer{Space: space, Bytes: s.Bytes[space]}
			if at, n := At(s, b, z); at+n > Arena(s, z) || n != s.Count(space).At(z)*b.Bytes {
				t.Errorf("%+v: a buffer in the region %s is at %d+%d of %d", z, space, at, n, Arena(s, z))
			}
		}
		if got := Arena(s, z); got != planned {
			t.Errorf("%+v: %d bytes are allocated, %d planned", z, got, planned)
		}
	}
}
