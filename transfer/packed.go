package transfer

import (
	"cmp"
	"slices"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/transfer/transport"
)

// packedReads collects reads of encoded regions: blocks, each once, which go to host memory and are
// decoded from there to their place.
type packedReads struct {
	packing *state.Codecs
	from    lowering.End
	regions []*packedRegion
}

// packedRegion is the reads of one region.
type packedRegion struct {
	*state.RegionCodec
	id     transport.Region
	rank   int
	pieces []transport.Piece // in bytes of the region before encoding
	spans  []span            // of encoded bytes: in order, disjoint
}

// span is a run of bytes of an encoded region, and its memory.
type span struct {
	from, to int64
	data     []byte
}

func newPackedReads(p *state.Codecs, from lowering.End) *packedReads {
	if p == nil {
		return nil
	}
	return &packedReads{packing: p, from: from}
}

// add adds a piece of a rank's states, or of one of its KV pages.
func (r *packedReads) add(p transport.Piece, rank int, states bool) {
	i := slices.IndexFunc(r.regions, func(x *packedRegion) bool { return x.id == p.Region && x.rank == rank })
	if i < 0 {
		i, r.regions = len(r.regions), append(r.regions, &packedRegion{RegionCodec: r.packing.Region(r.from, rank, states), id: p.Region, rank: rank})
	}
	x := r.regions[i]
	x.pieces = append(x.pieces, p)
	x.Spans(p.From, p.Bytes, func(from, to int64) { x.spans = append(x.spans, span{from, to, nil}) })
}

// pieces returns the reads; blocks that several ranks need are read once.
func (r *packedReads) pieces() (list []transport.Piece) {
	for _, x := range r.regions {
		slices.SortFunc(x.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		merged := x.spans[:0]
		for _, s := range x.spans {
			if n := len(merged); n > 0 && s.from <= merged[n-1].to {
				merged[n-1].to = max(merged[n-1].to, s.to)
			} else {
				merged = append(merged, s)
			}
		}
		x.spans = merged
		for i := range merged {
			s := &merged[i]
			s.data = make([]byte, s.to-s.from)
			list = append(list, transport.Piece{Region: x.id, From: s.from, Bytes: s.to - s.from, To: transport.Host(s.data)})
		}
	}
	return list
}

// at returns n encoded bytes.
func (x *packedRegion) at(at, n int64) []byte {
	i, found := slices.BinarySearchFunc(x.spans, at, func(s span, at int64) int { return cmp.Compare(s.from, at) })
	if !found {
		i--
	}
	return x.spans[i].data[at-x.spans[i].from:][:n]
}

// unpack decodes all pieces to their places.
func (r *packedReads) unpack() error {
	if r == nil {
		return nil
	}
	for _, x := range r.regions {
		for i := range x.pieces {
			p := &x.pieces[i]
			data := make([]byte, p.Bytes)
			x.Decode(data, p.From, x.at)
			if err := p.To.Write(data, p.At); err != nil {
				return err
			}
		}
	}
	return nil
}
