package lowering

import "slices"

// align is the alignment of buffers in bytes: a cache line. It holds for every
// count of a symbol, since a count multiplies offsets.
const align = 64

// arena plans one region: it hands out the lowest gap that fits.
type arena struct {
	used []span // sorted, disjoint
	peak int64
}

type span struct{ start, end int64 }

func roundUp(n int64) int64 { return (n + align - 1) / align * align }

func (a *arena) take(bytes int64) int64 {
	bytes = roundUp(bytes)
	at, i := int64(0), 0
	for ; i < len(a.used) && a.used[i].start < at+bytes; i++ {
		at = a.used[i].end
	}
	a.used = slices.Insert(a.used, i, span{at, at + bytes})
	a.peak = max(a.peak, at+bytes)
	return at
}

func (a *arena) give(start, bytes int64) {
	s := span{start, start + roundUp(bytes)}
	if i := slices.Index(a.used, s); i >= 0 {
		a.used = slices.Delete(a.used, i, i+1)
	}
}
