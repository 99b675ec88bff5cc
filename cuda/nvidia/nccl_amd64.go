//go:build linux

package nvidia

import (
	"runtime"
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// initRank calls ncclCommInitRank, which takes the id by value: on this
// processor such a struct lies on the stack, behind the six arguments that go
// into registers.
func (l *library) initRank(comm *uintptr, ranks int, id *driver.UniqueID, rank int) error {
	args := [6 + len(id)/8]uintptr{uintptr(unsafe.Pointer(comm)), uintptr(ranks), uintptr(rank)}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&args[6])), len(id)), id[:])
	defer runtime.KeepAlive(comm)
	return l.call(ncclCommInitRank, args[:]...)
}
