package operand

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// arenaSpaces are the regions of the arena, in their order.
var arenaSpaces = [...]lowering.Space{lowering.Fixed, lowering.PerToken, lowering.PerSeq, lowering.PerRow}

// Arena is the bytes that a schedule's arena takes for a batch.
func Arena(s *lowering.Schedule, z graph.Sizes) int64 {
	var n int64
	for _, space := range arenaSpaces {
		n += s.Bytes[space] * count(space, z)
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
		at += s.Bytes[space] * count(space, z)
	}
	n := count(b.Space, z)
	return at + b.Offset*n, b.Bytes * n
}

// count is how often a region repeats.
func count(s lowering.Space, z graph.Sizes) int64 {
	switch s {
	case lowering.PerToken:
		return z.Tokens
	case lowering.PerSeq:
		return z.Seqs
	case lowering.PerRow:
		return z.Rows
	}
	return 1
}
