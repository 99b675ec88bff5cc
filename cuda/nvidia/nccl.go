//go:build linux && (amd64 || arm64)

package nvidia

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/krait-ml/krait/cuda/driver"
)

// The functions of NCCL.
const (
	ncclGetVersion symbol = iota
	ncclGetUniqueId
	ncclCommInitRank
	ncclCommDestroy
	ncclCommAbort
	ncclCommGetAsyncError
	ncclGetLastError
	ncclGroupStart
	ncclGroupEnd
	ncclAllReduce
	ncclReduceScatter
	ncclAllGather
	ncclBroadcast
	ncclSend
	ncclRecv
)

var ncclNames = []string{
	ncclGetVersion:        "ncclGetVersion",
	ncclGetUniqueId:       "ncclGetUniqueId",
	ncclCommInitRank:      "ncclCommInitRank",
	ncclCommDestroy:       "ncclCommDestroy",
	ncclCommAbort:         "ncclCommAbort",
	ncclCommGetAsyncError: "ncclCommGetAsyncError",
	ncclGetLastError:      "ncclGetLastError",
	ncclGroupStart:        "ncclGroupStart",
	ncclGroupEnd:          "ncclGroupEnd",
	ncclAllReduce:         "ncclAllReduce",
	ncclReduceScatter:     "ncclReduceScatter",
	ncclAllGather:         "ncclAllGather",
	ncclBroadcast:         "ncclBroadcast",
	ncclSend:              "ncclSend",
	ncclRecv:              "ncclRecv",
}

const (
	oldestNCCL = 21300 // 2.13 has ncclGetLastError
	ncclSum    = 0
)

// ncclType is the ncclDataType_t of a format.
var ncclType = [...]uintptr{driver.F32: 7, driver.TF32: 7, driver.BF16: 9, driver.F16: 6}

func (d *cuda) openNCCL() (lib library, version string, err error) {
	hint := fmt.Sprintf("Install NCCL 2.13 or newer: as a package (libnccl2), or by pip install nvidia-nccl-cu%d; "+
		"set KRAIT_CUDA_PATH to its folder if it is not found. One rank needs none.", d.version/1000)
	handle, err := d.search.open("libnccl.so.2")
	if err != nil {
		return lib, "", missing("NCCL", hint, "%v", err)
	}
	lib = library{names: ncclNames, fail: driver.NCCL}
	if name := lib.bind(handle); name != "" {
		return lib, "", missing("NCCL", hint, "%s lacks %s", lib.path, name)
	}
	var n int32
	if err := lib.call(ncclGetVersion, uintptr(unsafe.Pointer(&n))); err != nil {
		return lib, "", err
	}
	version = fmt.Sprintf("%d.%d.%d", n/10000, n%10000/100, n%100)
	if n < oldestNCCL {
		return lib, version, missing("NCCL", hint, "%s is NCCL %s, which is too old", lib.path, version)
	}
	lib.fail = func(call string, code int) *driver.Error { return lib.ncclFailure(call, code) }
	return lib, version, nil
}

// ncclFailure adds what NCCL itself says about the error.
func (l *library) ncclFailure(call string, code int) *driver.Error {
	e := driver.NCCL(call, code)
	r, _, _ := purego.SyscallN(l.addrs[ncclGetLastError], 0)
	if said := text(*(**byte)(unsafe.Pointer(&r))); said != "" {
		return e.Because("%s", said)
	}
	return e
}

func (d *cuda) ncclVersion() driver.Version {
	_, err := d.nccl.get(d.openNCCL)
	return d.nccl.describe("NCCL", err)
}

// UniqueID asks NCCL for the name of a group.
func (d *cuda) UniqueID() (id driver.UniqueID, err error) {
	nccl, err := d.nccl.get(d.openNCCL)
	if err != nil {
		return id, err
	}
	err = nccl.call(ncclGetUniqueId, uintptr(unsafe.Pointer(&id)))
	return id, err
}

// Join makes the communicator on a thread of its own, which NCCL may keep: there
// is no way to call its wait off.
func (d *cuda) Join(ctx context.Context, c driver.Context, id driver.UniqueID, ranks, rank int) (driver.Collectives, error) {
	nccl, err := d.nccl.get(d.openNCCL)
	if err != nil {
		return nil, err
	}
	on, ok := c.(*primary)
	if !ok {
		return nil, foreign("ncclCommInitRank", c)
	}
	made := make(chan error, 1)
	x := &collectives{nccl: nccl}
	var left atomic.Bool
	go func() {
		runtime.LockOSThread() // ends with the goroutine
		err := on.Bind()
		if err == nil {
			err = nccl.initRank(&x.comm, ranks, &id, rank)
		}
		if err == nil && left.Swap(true) {
			nccl.call(ncclCommAbort, x.comm)
		}
		made <- err
	}()
	select {
	case err := <-made:
		if err != nil {
			return nil, because(err, "rank %d of %d on device %d", rank, ranks, on.info.Index)
		}
		return x, nil
	case <-ctx.Done():
		if left.Swap(true) { // it was made at the last moment
			<-made
			nccl.call(ncclCommAbort, x.comm)
		}
		return nil, &driver.Error{Call: "ncclCommInitRank", Text: fmt.Sprintf("rank %d of %d gave up waiting for the others", rank, ranks), Cause: context.Cause(ctx)}
	}
}

// collectives is an NCCL communicator.
type collectives struct {
	nccl *library
	comm uintptr
	gone atomic.Bool // closed or aborted
}

// run calls a function that puts work into a stream.
func (x *collectives) run(f symbol, on driver.Stream, count int64, args ...uintptr) error {
	s, ok := on.(*stream)
	switch {
	case x.gone.Load():
		return closed(ncclNames[f], "communicator")
	case !ok:
		return foreign(ncclNames[f], on)
	case s.handle == 0:
		return closed(ncclNames[f], "stream")
	}
	var all [8]uintptr
	n := copy(all[:], args)
	all[n], all[n+1] = x.comm, s.handle
	if err := x.nccl.quick(f, all[:n+2]...); err != nil {
		return because(err, "%d elements", count)
	}
	return nil
}

func (x *collectives) AllReduce(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	return x.run(ncclAllReduce, s, count, uintptr(send), uintptr(recv), uintptr(count), ncclType[f], ncclSum)
}

func (x *collectives) ReduceScatter(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	return x.run(ncclReduceScatter, s, count, uintptr(send), uintptr(recv), uintptr(count), ncclType[f], ncclSum)
}

func (x *collectives) AllGather(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	return x.run(ncclAllGather, s, count, uintptr(send), uintptr(recv), uintptr(count), ncclType[f])
}

func (x *collectives) Broadcast(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format, root int) error {
	return x.run(ncclBroadcast, s, count, uintptr(send), uintptr(recv), uintptr(count), ncclType[f], uintptr(root))
}

func (x *collectives) Send(s driver.Stream, buf driver.Ptr, count int64, f driver.Format, peer int) error {
	return x.run(ncclSend, s, count, uintptr(buf), uintptr(count), ncclType[f], uintptr(peer))
}

func (x *collectives) Recv(s driver.Stream, buf driver.Ptr, count int64, f driver.Format, peer int) error {
	return x.run(ncclRecv, s, count, uintptr(buf), uintptr(count), ncclType[f], uintptr(peer))
}

func (x *collectives) GroupStart() error { return x.nccl.quick(ncclGroupStart) }

func (x *collectives) GroupEnd() error { return x.nccl.quick(ncclGroupEnd) }

func (x *collectives) AsyncError() error {
	if x.gone.Load() {
		return closed("ncclCommGetAsyncError", "communicator")
	}
	var n int32
	if err := x.nccl.call(ncclCommGetAsyncError, x.comm, uintptr(unsafe.Pointer(&n))); err != nil || n == 0 {
		return err
	}
	return x.nccl.ncclFailure("ncclCommGetAsyncError", int(n))
}

func (x *collectives) Abort() error {
	if x.gone.Swap(true) {
		return nil
	}
	return x.nccl.call(ncclCommAbort, x.comm)
}

func (x *collectives) Close() error {
	if x.gone.Swap(true) {
		return closed("ncclCommDestroy", "communicator")
	}
	return x.nccl.call(ncclCommDestroy, x.comm)
}
