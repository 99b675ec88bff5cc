package lowering

import (
	"cmp"
	"slices"
)

// align is the alignment of buffers in bytes: a cache line. It holds for every
// count of a symbol, since a count multiplies offsets.
const align = 64

func roundUp(n int64) int64 { return (n + align - 1) / align * align }

// span is a stretch of a region.
type span struct{ start, end int64 }

// lifetime is a buffer that wants a place: from node born to node died it shares
// its bytes with no other.
type lifetime struct {
	born, died int
	bytes      int64
}

// rounds is how often an order is changed after what it gave.
const rounds = 16

// pack places buffers so that those that live at the same time do not overlap, and returns their
// offsets and the bytes that all take. No placement can beat the sum of what lives at the worst
// moment; the first that needs no more is taken, else the best of those that were tried.
func pack(list []lifetime) (offsets []int64, peak int64) {
	offsets, peak, _ = packWith(list, nil)
	return offsets, peak
}

// packWith places buffers as pack does, and more around them, up to top: of what needs no
// more than the best for the buffers that which leaves most to the others.
func packWith(list, more []lifetime) (offsets []int64, peak, top int64) {
	p := newPacker(list)
	all := p
	if len(more) > 0 {
		all = newPacker(slices.Concat(list, more))
	}
	for _, order := range p.orders(all) {
		for range rounds {
			at, high := p.fit(order, nil)
			if offsets == nil || high <= peak {
				full, end := all.around(at, high)
				if offsets == nil || high < peak || end < top {
					offsets, peak, top = full, high, end
				}
			}
			if peak == p.least && top == max(peak, all.least) {
				return offsets, peak, top
			}
			order = p.promote(order, at, high)
		}
	}
	return offsets, peak, top
}

// around places the buffers that have no place among those that have one, which end at high.
func (p *packer) around(at []int64, high int64) (full []int64, top int64) {
	if len(at) == len(p.list) {
		return at, high
	}
	for _, order := range p.orders(nil) {
		order = slices.DeleteFunc(order, func(i int) bool { return i < len(at) })
		got, end := p.fit(order, at)
		if end = max(end, high); full == nil || end < top {
			full, top = got, end
		}
	}
	return full, top
}

// packer knows which buffers live at the same time.
type packer struct {
	list     []lifetime // with bytes rounded up
	birth    []int      // buffers in the order of their births
	overlaps [][]int    // by buffer: those that live when it does
	least    int64      // the most bytes that live at once
}

func newPacker(list []lifetime) *packer {
	p := &packer{list: slices.Clone(list), overlaps: make([][]int, len(list))}
	for i := range p.list {
		p.list[i].bytes = roundUp(p.list[i].bytes)
		p.birth = append(p.birth, i)
	}
	slices.SortStableFunc(p.birth, func(a, b int) int { return cmp.Compare(list[a].born, list[b].born) })
	var alive []int
	for _, i := range p.birth {
		alive = slices.DeleteFunc(alive, func(k int) bool { return list[k].died < list[i].born })
		sum := p.list[i].bytes
		for _, k := range alive {
			p.overlaps[i], p.overlaps[k] = append(p.overlaps[i], k), append(p.overlaps[k], i)
			sum += p.list[k].bytes
		}
		p.least = max(p.least, sum)
		alive = append(alive, i)
	}
	return p
}

// orders are those in which buffers are placed at first. A buffer that comes early lies well,
// and the others go around it: the large, the large and long-lived, the long-lived,
// the first-born. Where others are to come between, those that live beside some of them come
// first, so that what they leave is in one piece.
func (p *packer) orders(all *packer) [][]int {
	by := func(weight func(l lifetime) int64) []int {
		order := slices.Clone(p.birth)
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight(p.list[b]), weight(p.list[a])) })
		return order
	}
	length := func(l lifetime) int64 { return int64(l.died-l.born) + 1 }
	list := [][]int{
		by(func(l lifetime) int64 { return l.bytes }),
		by(func(l lifetime) int64 { return l.bytes * length(l) }),
		by(length),
		p.birth,
	}
	if all == nil || all == p {
		return list
	}
	beside := func(i int) bool {
		return slices.ContainsFunc(all.overlaps[i], func(k int) bool { return k >= len(p.list) })
	}
	for _, order := range list {
		order = slices.Clone(order)
		near := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return !beside(i) })
		far := slices.DeleteFunc(order, beside)
		list = append(list, append(near, far...))
	}
	return list
}

// promote puts those buffers first that reach the top: they found no better place.
func (p *packer) promote(order []int, at []int64, top int64) []int {
	out := slices.Clone(order)
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Compare(at[b]+p.list[b].bytes, top) - cmp.Compare(at[a]+p.list[a].bytes, top)
	})
	return out
}

// fit gives buffers, one after another, the best place between those whose lives overlap
// their own; the first ones may have theirs.
func (p *packer) fit(order []int, places []int64) (at []int64, top int64) {
	at = append(slices.Clone(places), slices.Repeat([]int64{-1}, len(p.list)-len(places))...)
	var taken []span
	for _, i := range order {
		taken = taken[:0]
		for _, k := range p.overlaps[i] {
			if at[k] >= 0 {
				taken = append(taken, span{at[k], at[k] + p.list[k].bytes})
			}
		}
		at[i] = bestFit(taken, p.list[i].bytes)
		top = max(top, at[i]+p.list[i].bytes)
	}
	return at, top
}

// bestFit is the beginning of the smallest gap between spans that n bytes fit in,
// or the end of all.
func bestFit(taken []span, n int64) int64 {
	slices.SortFunc(taken, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	best, least, end := int64(-1), int64(0), int64(0)
	for _, s := range taken {
		if gap := s.start - end; gap >= n && (best < 0 || gap < least) {
			best, least = end, gap
		}
		end = max(end, s.end)
	}
	if best >= 0 {
		return best
	}
	return end
}
