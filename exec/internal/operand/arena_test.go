package operand

import (
	"math/rand/v2"
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

// TestPieces: what lies apart for a count of one does for any batch, and inside of the arena, also
// where a piece begins in the region of all tokens and ends after it.
func TestPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		s := &lowering.Schedule{Ranks: 1 + r.IntN(4), PieceTokens: 1 + r.IntN(9)}
		whole, piece := lowering.PerToken, lowering.PerPiece
		unit := int64(64)
		if r.IntN(2) > 0 {
			whole, piece, unit = lowering.PerTokenShare, lowering.PerPieceShare, unit*int64(s.Ranks)
		}
		s.Bytes[whole], s.Bytes[piece], s.Bytes[lowering.Fixed] = unit*r.Int64N(9), unit*r.Int64N(9), 64
		draw := func() *lowering.Buffer {
			b := &lowering.Buffer{Space: piece, Bytes: unit * (1 + r.Int64N(4))}
			if b.Offset = unit*r.Int64N(18) - s.Bytes[whole]; r.IntN(2) > 0 {
				b.Space, b.Offset = whole, unit*r.Int64N(9)
			}
			if b.Offset+b.Bytes > s.Bytes[b.Space] {
				return nil
			}
			return b
		}
		a, b := draw(), draw()
		if a == nil || b == nil {
			continue
		}
		_, i := s.Place(a)
		_, k := s.Place(b)
		for n := range int64(40) {
			z := graph.Sizes{Tokens: n}
			at, bytes := At(s, a, z)
			to, other := At(s, b, z)
			apart := at+bytes <= to || to+other <= at
			if (i+a.Bytes <= k || k+b.Bytes <= i) && !apart || at < 64 || at+bytes > Arena(s, z) {
				t.Fatalf("%d ranks, pieces of %d, %v: %d tokens of %+v are at %d+%d of %d, of %+v at %d+%d", s.Ranks, s.PieceTokens, s.Bytes, n, a, at, bytes, Arena(s, z), b, to, other)
			}
		}
	}
}
