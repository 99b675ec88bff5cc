package exec

import (
	"fmt"

	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lowering"
)

// PackedRegion says where a region of a rank's memory, as a [View] shows it, has what when it
// is packed: its states, or its rows of caches, one after another and without padding.
type PackedRegion struct{ stretches }

// Region is a region of a rank at an end of a transfer, which may be another than this engine's,
// of the same model: its states, or a page.
func (p *Packing) Region(end lowering.End, rank int, states bool) *PackedRegion {
	if states {
		return &PackedRegion{p.run(end.Keeps, rank)}
	}
	return &PackedRegion{p.page(end.Keeps, rank, end.PageTokens)}
}

// Pack packs a region: of a page the rows from one on, up to another; of others is nothing.
func (r *PackedRegion) Pack(raw []byte, first, end int) ([]byte, error) {
	if int64(len(raw)) != r.raw {
		return nil, fmt.Errorf("a region of %d bytes, not %d", len(raw), r.raw)
	}
	return r.pack(raw, first, end)
}

// Spans visits what of the packed region holds n bytes of the region from one on: whole blocks.
func (r *PackedRegion) Spans(at, n int64, visit func(from, to int64)) {
	r.each(at, n, func(s *stretch, from, to, _ int64) {
		if s.asIs() {
			visit(s.packed+from, s.packed+to)
			return
		}
		first, last := from/int64(s.dtype.Bytes()), (to-1)/int64(s.dtype.Bytes())
		visit(s.block(first), s.block(last)+int64(s.codec.BlockBytes()))
	})
}

// Unpack reads n = len(to) bytes of the region from one on, out of what a function has of the packed
// region: n bytes from one on.
func (r *PackedRegion) Unpack(to []byte, at int64, packed func(at, n int64) []byte) {
	r.each(at, int64(len(to)), func(s *stretch, from, end, begin int64) {
		if s.asIs() {
			copy(to[begin:], packed(s.packed+from, end-from))
			return
		}
		size := int64(s.dtype.Bytes())
		values, bytes := make([]float32, s.codec.Block), make([]byte, int64(s.codec.Block)*size)
		for e := from / size; e < end/size; {
			col := int(e) % s.elems
			first := col / s.codec.Block * s.codec.Block
			n := min(s.codec.Block, s.elems-first)
			codec.Decode(s.codec, values[:n], packed(s.block(e), int64(s.codec.BlockBytes())))
			s.write(bytes, values[:n])
			part := bytes[int64(col-first)*size : min(int64(n), int64(col-first)+end/size-e)*size]
			copy(to[begin+e*size-from:], part)
			e += int64(len(part)) / size
		}
	})
}

// block is where the block of an element begins.
func (s *stretch) block(elem int64) int64 {
	row, col := elem/int64(s.elems), int(elem%int64(s.elems))
	return s.packed + row*s.packedRow() + int64(col/s.codec.Block*s.codec.BlockBytes())
}

// each visits what stretches have of n bytes from one on: bytes of the stretch, and where these
// begin among the n. What is between stretches is padding.
func (r *PackedRegion) each(at, n int64, visit func(s *stretch, from, to, begin int64)) {
	for i := range r.list {
		s := &r.list[i]
		from, to := max(at, s.at), min(at+n, s.at+r.rows*s.rawRow())
		if from < to {
			visit(s, from-s.at, to-s.at, from-at)
		}
	}
}
