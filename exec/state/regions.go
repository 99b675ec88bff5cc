package state

import (
	"fmt"

	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lowering"
)

// RegionCodec compresses a region of a rank's memory, as a [View] has it: recurrent states, or rows
// of KV caches, one after another and without padding.
type RegionCodec struct{ layout }

// Region returns the codec of a region of a rank at an end of a transfer, which may be another
// engine of the same model: recurrent states, or a page.
func (c *Codecs) Region(end lowering.End, rank int, states bool) *RegionCodec {
	if states {
		return &RegionCodec{c.layout(end.States, rank, 0)}
	}
	return &RegionCodec{c.layout(end.States, rank, end.PageTokens)}
}

// Encode compresses a region: of a page the rows from first to end; others are zero.
func (r *RegionCodec) Encode(raw []byte, first, end int) ([]byte, error) {
	if int64(len(raw)) != r.raw {
		return nil, fmt.Errorf("a region of %d bytes, not %d", len(raw), r.raw)
	}
	return r.encode(raw, first, end)
}

// Spans calls f for each run [from, to) of the compressed region that holds bytes [at, at+n) of the
// raw one: whole blocks.
func (r *RegionCodec) Spans(at, n int64, f func(from, to int64)) {
	r.each(at, n, func(s *segment, from, to, _ int64) {
		if s.asIs() {
			f(s.packed+from, s.packed+to)
			return
		}
		first, last := from/int64(s.dtype.Bytes()), (to-1)/int64(s.dtype.Bytes())
		f(s.block(first), s.block(last)+int64(s.codec.BlockBytes()))
	})
}

// Decode writes the raw bytes [at, at+len(to)) to to. packed(at, n) returns n bytes of the
// compressed region, from at on.
func (r *RegionCodec) Decode(to []byte, at int64, packed func(at, n int64) []byte) {
	r.each(at, int64(len(to)), func(s *segment, from, end, begin int64) {
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

// block is the offset of the block of an element in the compressed region.
func (s *segment) block(elem int64) int64 {
	row, col := elem/int64(s.elems), int(elem%int64(s.elems))
	return s.packed + row*s.packedRow() + int64(col/s.codec.Block*s.codec.BlockBytes())
}

// each calls f for the bytes [from, to) of each segment that are among the raw bytes [at, at+n),
// and where they begin among these. Bytes between segments are padding.
func (r *RegionCodec) each(at, n int64, f func(s *segment, from, to, begin int64)) {
	for i := range r.segments {
		s := &r.segments[i]
		from, to := max(at, s.at), min(at+n, s.at+r.rows*s.rawRow())
		if from < to {
			f(s, from-s.at, to-s.at, from-at)
		}
	}
}
