package ptx

import "math/bits"

// written has a bit for every byte of a piece of memory: set once the byte has
// been written.
type written []uint64

func newWritten(bytes int64) written { return make(written, (bytes+63)/64) }

// has reports whether n bytes at off are all written; n is a power of two up
// to 32 and off a multiple of it, so that they lie in one word.
func (w written) has(off, n uint64) bool {
	m := (uint64(1)<<(n&63) - 1) << (off & 63)
	return w[off>>6]&m == m
}

// set marks such bytes written and says how many were not before.
func (w written) set(off, n uint64) (fresh int64) {
	word, mask := &w[off>>6], (uint64(1)<<(n&63)-1)<<(off&63)
	if missing := mask &^ *word; missing != 0 {
		*word |= mask
		fresh = int64(bits.OnesCount64(missing))
	}
	return fresh
}

// clear marks such bytes unwritten.
func (w written) clear(off, n uint64) {
	w[off>>6] &^= (uint64(1)<<(n&63) - 1) << (off & 63)
}

// eachWord calls f with the mask of every word's bits in [off, off+n).
func eachWord(off, n uint64, f func(word int, mask uint64)) {
	for n > 0 {
		first := off & 63
		count := min(64-first, n)
		mask := ^uint64(0)
		if count < 64 {
			mask = (uint64(1)<<count - 1) << first
		}
		f(int(off>>6), mask)
		off += count
		n -= count
	}
}

// firstUnwritten finds the first unwritten byte of any range, n if there is
// none.
func (w written) firstUnwritten(off, n uint64) uint64 {
	first := n
	eachWord(off, n, func(word int, mask uint64) {
		if missing := mask &^ w[word]; missing != 0 && first == n {
			first = uint64(word)<<6 + uint64(bits.TrailingZeros64(missing)) - off
		}
	})
	return first
}

// setRange marks any range written and says how many bytes were not before.
func (w written) setRange(off, n uint64) (fresh int64) {
	eachWord(off, n, func(word int, mask uint64) {
		fresh += int64(bits.OnesCount64(mask &^ w[word]))
		w[word] |= mask
	})
	return fresh
}

// clearRange marks any range unwritten and says how many bytes were written.
func (w written) clearRange(off, n uint64) (lost int64) {
	eachWord(off, n, func(word int, mask uint64) {
		lost += int64(bits.OnesCount64(mask & w[word]))
		w[word] &^= mask
	})
	return lost
}
