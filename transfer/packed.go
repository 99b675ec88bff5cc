package transfer

import (
	"cmp"
	"slices"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/transfer/transport"
)

// packedReads collects what is to be read of regions that are packed: blocks, each once, which
// go to memory of the host, and from there to where their elements belong.
type packedReads struct {
	packing *state.Codecs
	from    lowering.End
	regions []*packedRegion
}

// packedRegion is what is wanted of a region.
type packedRegion struct {
	*state.RegionCodec
	id     transport.Region
	rank   int
	wanted []transport.Piece // bytes of the region as it was before it was packed
	spans  []span            // of what is packed: in order, apart
}

// span is a stretch of a packed region, and its memory.
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

// add wants a piece of a rank's states, or of a page of its.
func (r *packedReads) add(p transport.Piece, rank int, states bool) {
	i := slices.IndexFunc(r.regions, func(x *packedRegion) bool { return x.id == p.Region && x.rank == rank })
	if i < 0 {
		i, r.regions = len(r.regions), append(r.regions, &packedRegion{RegionCodec: r.packing.Region(r.from, rank, states), id: p.Region, rank: rank})
	}
	x := r.regions[i]
	x.wanted = append(x.wanted, p)
	x.Spans(p.From, p.Bytes, func(from, to int64) { x.spans = append(x.spans, span{from, to, nil}) })
}

// pieces are what is to be read: what ranks want of the same blocks comes once.
func (r *packedReads) pieces() (list []transport.Piece) {
	for _, x := range r.regions {
		slices.SortFunc(x.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		kept := x.spans[:0]
		for _, s := range x.spans {
			if n := len(kept); n > 0 && s.from <= kept[n-1].to {
				kept[n-1].to = max(kept[n-1].to, s.to)
			} else {
				kept = append(kept, s)
			}
		}
		x.spans = kept
		for i := range kept {
			s := &kept[i]
			s.data = make([]byte, s.to-s.from)
			list = append(list, transport.Piece{Region: x.id, From: s.from, Bytes: s.to - s.from, To: transport.Host(s.data)})
		}
	}
	return list
}

// at is n bytes of what was read.
func (x *packedRegion) at(at, n int64) []byte {
	i, found := slices.BinarySearchFunc(x.spans, at, func(s span, at int64) int { return cmp.Compare(s.from, at) })
	if !found {
		i--
	}
	return x.spans[i].data[at-x.spans[i].from:][:n]
}

// unpack brings all to its place.
func (r *packedReads) unpack() error {
	if r == nil {
		return nil
	}
	for _, x := range r.regions {
		for i := range x.wanted {
			p := &x.wanted[i]
			data := make([]byte, p.Bytes)
			x.Decode(data, p.From, x.at)
			if err := p.To.Write(data, p.At); err != nil {
				return err
			}
		}
	}
	return nil
}
