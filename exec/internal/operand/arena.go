package operand

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// arenaSpaces are the regions of the arena, in their order: pieces follow what all tokens have.
var arenaSpaces = [...]lowering.Space{lowering.Fixed, lowering.PerSeq, lowering.PerRow, lowering.PerSeqShare, lowering.PerRowShare,
	lowering.PerLargest, lowering.PerToken, lowering.PerPiece, lowering.PerTokenShare, lowering.PerPieceShare}

// Arena is the bytes that a schedule's arena takes for a batch.
func Arena(s *lowering.Schedule, z graph.Sizes) int64 {
	var n int64
	for _, space := range arenaSpaces {
		n += s.Bytes[space] * count(s, space, z)
	}
	return n
}

// InArena reports whether a buffer lies in the arena; others have their own memory.
func InArena(b *lowering.Buffer) bool { return b.Space >= lowering.PerToken }

// At is where a buffer lies in the arena for a batch.
func At(s *lowering.Schedule, b *lowering.Buffer, z graph.Sizes) (at, bytes int64) {
	for _, space := range arenaSpaces {
		if space == b.Space {
			break
		}
		at += s.Bytes[space] * count(s, space, z)
	}
	n := count(s, b.Space, z)
	if b.Offset < 0 { // a piece in the region before
		return at + b.Offset*count(s, b.Space.Before(), z), b.Bytes * n
	}
	return at + b.Offset*n, b.Bytes * n
}

// count is how often a region repeats.
func count(s *lowering.Schedule, space lowering.Space, z graph.Sizes) int64 {
	share := func(n int64) int64 { return (n + int64(s.Ranks) - 1) / int64(s.Ranks) }
	switch space {
	case lowering.PerToken:
		return z.Tokens
	case lowering.PerSeq:
		return z.Seqs
	case lowering.PerRow:
		return z.Rows
	case lowering.PerTokenShare:
		return share(z.Tokens)
	case lowering.PerSeqShare:
		return share(z.Seqs)
	case lowering.PerRowShare:
		return share(z.Rows)
	case lowering.PerLargest:
		return z.Of(graph.Largest)
	case lowering.PerPiece:
		return min(z.Tokens, int64(s.PieceTokens))
	case lowering.PerPieceShare:
		return share(min(z.Tokens, int64(s.PieceTokens)))
	}
	return 1
}
