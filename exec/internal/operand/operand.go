// Package operand computes the offsets and sizes of a schedule's tensors for a batch, for all
// devices.
package operand

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Operand is a tensor of a step, without its memory.
type Operand struct {
	kernels.Tensor
	Buffer, Offset int       // of the schedule; elements from its beginning
	first          graph.Dim // the first axis
	slots          bool      // it has a row per slot
	piece          bool      // there is room for the tokens of a piece
	cache          bool      // it has a row per token, in pages

	rows        *graph.Type // of which the rank has some, as the batch says; nil: it has all
	ranks, rank int
}

// New makes an operand without the sizes of a batch.
func New(s *lowering.Schedule, ref lowering.Ref) Operand {
	space := s.Buffers[ref.Buffer].Space
	o := Operand{Tensor: kernels.Describe(s.Share(ref.Type)), Buffer: ref.Buffer, Offset: ref.Offset}
	if !ref.Type.DType.InBlocks() { // of which rows are bytes
		o.Stride = ref.Stride
	}
	o.piece = space.OfPiece()
	o.slots, o.cache = space == lowering.State || space == lowering.Cache, space == lowering.Cache
	if space == lowering.State { // rows are as far apart as the runs of slots
		o.Stride = int(s.Bytes[space]) / ref.Type.DType.Bytes()
	}
	if d := ref.Type.Dims; len(d) > 0 {
		o.first = d[0]
	}
	if rows, ranks, at, ok := s.RowShare(ref.Type); ok {
		o.rows, o.ranks, o.rank = &rows, ranks, at
	}
	return o
}

// Cut limits o, after Resize, to the rows of a piece of the batch's tokens, and returns the offset
// in elements of the first. A tensor without a row per token stays as it is.
func (o *Operand) Cut(b *graph.Batch, piece graph.Run) (at int) {
	switch {
	case o.first.Sym != graph.Tokens:
		return 0
	case o.rows != nil:
		piece = o.rows.ExtentsWithin(b, o.ranks, o.rank, piece)
	case o.piece:
		piece.Start = 0
	}
	o.Dims[0] = piece.Len
	return piece.Start * o.Stride
}

// Wide appends to a list those rows of o that are in whole blocks of the batch's tokens, of which
// o has a piece. A tensor without a row per token has none.
func (o *Operand) Wide(to []graph.Run, b *graph.Batch, wide []graph.Run, piece graph.Run) []graph.Run {
	if o.first.Sym != graph.Tokens || len(wide) == 0 {
		return to
	}
	held := []graph.Run{piece}
	if o.rows != nil {
		held = o.rows.Extents(b, o.ranks, o.rank)
	}
	row := 0
	for _, h := range held {
		h = h.Within(piece)
		for _, x := range wide {
			if x = x.Within(h); x.Len > 0 {
				to = append(to, graph.Run{Start: row + x.Start - h.Start, Len: x.Len})
			}
		}
		row += h.Len
	}
	return to
}

// Resize sets the first axis to its size for a batch, and that of a KV cache to the tokens of a
// sequence.
func (o *Operand) Resize(b *graph.Batch, slots, tokens int) {
	switch {
	case o.rows != nil:
		o.Hold(o.rows.Extents(b, o.ranks, o.rank))
	case o.cache:
		o.Dims[0], o.Dims[1] = slots, tokens
	case o.slots:
		o.Dims[0] = slots
	case o.first.Sym != 0:
		o.Dims[0] = o.first.At(b.Sizes)
	}
}
