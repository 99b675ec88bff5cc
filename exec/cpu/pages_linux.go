package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page.
const hugePage = 2 << 20

// roomy allocates memory, and asks the system for huge pages.
func roomy(n int64) []byte {
	if n < hugePage {
		return make([]byte, n)
	}
	data := make([]byte, n+hugePage) // memory before the first page is never touched
	data = data[-uintptr(unsafe.Pointer(&data[0]))&(hugePage-1):][:n]
	if whole := inside(data, hugePage); len(whole) > 0 {
		_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	}
	return data
}

// prefetch reads the pages of a map at once, which is faster than one by one. Where the system
// cannot, the reads that follow do.
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
