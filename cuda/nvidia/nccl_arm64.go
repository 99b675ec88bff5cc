//go:build linux

package nvidia

import (
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// initRank calls ncclCommInitRank, which takes the id by value: on this
// processor the caller passes the address of such a struct, a copy.
func (l *library) initRank(comm *uintptr, ranks int, id *driver.UniqueID, rank int) error {
	copied := *id
	return l.call(ncclCommInitRank, uintptr(unsafe.Pointer(comm)), uintptr(ranks), uintptr(unsafe.Pointer(&copied)), uintptr(rank))
}
