package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is what a processor can map at once, of which few are enough for all
// that a step reads and writes.
const hugePage = 2 << 20

// roomy makes memory that the system is asked to put into huge pages. Where it does
// not, nothing is lost.
func roomy(n int64) []byte {
	if n < hugePage {
		return make([]byte, n)
	}
	data := make([]byte, n+hugePage) // what is before the first of them is never touched
	data = data[-uintptr(unsafe.Pointer(&data[0]))&(hugePage-1):][:n]
	if whole := inside(data, hugePage); len(whole) > 0 {
		_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	}
	return data
}

// prefetch asks for the pages of a map: all at once is faster than one by one, and
// systems that do not know how leave it to the reads that follow.
func prefetch(data []byte) {
	if whole := inside(data, unix.Getpagesize()); len(whole) > 0 {
		_ = unix.Madvise(whole, unix.MADV_POPULATE_READ)
	}
}

// inside is the part of data that consists of whole pages.
func inside(data []byte, page int) []byte {
	if len(data) < page {
		return nil
	}
	before := int(-uintptr(unsafe.Pointer(&data[0])) % uintptr(page))
	if len(data)-before < page {
		return nil
	}
	return data[before : before+(len(data)-before)/page*page]
}
