//go:build linux && (amd64 || arm64)

package nvidia

import (
	"math"
	"runtime"
	"time"
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// stream is a CUDA stream, with the memory in which it hands parameters of
// kernels to the driver.
type stream struct {
	*primary
	handle uintptr // 0 when closed
	size   uintptr
	extra  [5]uintptr
	config launchConfig
	may    launchAttribute // overlap
	params [driver.MaxParams]byte
}

func newStream(c *primary) *stream {
	const buffer, bufferSize = 1, 2 // CU_LAUNCH_PARAM_…
	s := &stream{primary: c}
	// Heap memory does not move, and s lives as long as calls on it.
	s.extra = [5]uintptr{buffer, uintptr(unsafe.Pointer(&s.params)), bufferSize, uintptr(unsafe.Pointer(&s.size)), 0}
	s.may = launchAttribute{id: serialization, value: [16]uint32{1}}
	s.config = launchConfig{attributes: uintptr(unsafe.Pointer(&s.may)), count: 1}
	return s
}

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	stream      uintptr
	attributes  uintptr
	count       uint32
}

// launchAttribute is CUlaunchAttribute.
type launchAttribute struct {
	id    uint32
	_     uint32
	value [16]uint32
}

// serialization is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: with 1 the launch may
// begin when all blocks of the one before have let it, or have ended.
const serialization = 6

// open checks that the stream is not closed: handle 0 is the default stream.
func (s *stream) open(f symbol) error {
	if s.handle == 0 {
		return closed(s.names[f], "stream")
	}
	return nil
}

func (s *stream) CopyIn(dst driver.Ptr, src []byte) error {
	pinned, err := s.host(cuMemcpyHtoDAsync, src)
	switch {
	case err != nil || len(src) == 0:
		return err
	case pinned:
		err = s.quick(cuMemcpyHtoDAsync, uintptr(dst), address(src), uintptr(len(src)), s.handle)
	default:
		err = s.call(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), s.handle)
	}
	return s.moved(err, dst, int64(len(src)))
}

func (s *stream) CopyOut(dst []byte, src driver.Ptr) error {
	pinned, err := s.host(cuMemcpyDtoHAsync, dst)
	switch {
	case err != nil || len(dst) == 0:
		return err
	case pinned:
		err = s.quick(cuMemcpyDtoHAsync, address(dst), uintptr(src), uintptr(len(dst)), s.handle)
	default:
		err = s.call(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), s.handle)
	}
	return s.moved(err, src, int64(len(dst)))
}

// host says whether the host memory of a copy is pinned, which it must be if
// the copy goes into a graph.
func (s *stream) host(f symbol, b []byte) (pinned bool, err error) {
	if err := s.open(f); err != nil || len(b) == 0 {
		return false, err
	}
	if s.pinned.hold(b) {
		return true, nil
	}
	var status int32
	if err := s.call(cuStreamIsCapturing, s.handle, uintptr(unsafe.Pointer(&status))); err != nil {
		return false, err
	}
	if status != 0 {
		return false, driver.CUDA(s.names[f], driver.CaptureUnsupported).Because("the host memory is not pinned")
	}
	return false, nil
}

// moved adds to an error what was copied or filled.
func (s *stream) moved(err error, p driver.Ptr, n int64) error {
	if err == nil {
		return nil
	}
	return because(err, "%d bytes at %#x on device %d", n, uint64(p), s.info.Index)
}

func (s *stream) Copy(dst, src driver.Ptr, bytes int64) error {
	if err := s.open(cuMemcpyDtoDAsync); err != nil || bytes == 0 {
		return err
	}
	return s.moved(s.quick(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), s.handle), dst, bytes)
}

func (s *stream) CopyPeer(dst driver.Ptr, dstCtx driver.Context, src driver.Ptr, srcCtx driver.Context, bytes int64) error {
	if err := s.open(cuMemcpyPeerAsync); err != nil || bytes == 0 {
		return err
	}
	to, ok1 := dstCtx.(*primary)
	from, ok2 := srcCtx.(*primary)
	if !ok1 || !ok2 {
		return foreign("cuMemcpyPeerAsync", dstCtx)
	}
	if to.handle == 0 || from.handle == 0 {
		return closed("cuMemcpyPeerAsync", "other context")
	}
	return s.moved(s.quick(cuMemcpyPeerAsync, uintptr(dst), to.handle, uintptr(src), from.handle, uintptr(bytes), s.handle), dst, bytes)
}

func (s *stream) Fill(dst driver.Ptr, value byte, bytes int64) error {
	if err := s.open(cuMemsetD8Async); err != nil || bytes == 0 {
		return err
	}
	return s.moved(s.quick(cuMemsetD8Async, uintptr(dst), uintptr(value), uintptr(bytes), s.handle), dst, bytes)
}

func (s *stream) Record(e driver.Event) error {
	ev, err := s.event(cuEventRecord, e)
	if err != nil {
		return err
	}
	return s.quick(cuEventRecord, ev.handle, s.handle)
}

func (s *stream) Wait(e driver.Event) error {
	ev, err := s.event(cuStreamWaitEvent, e)
	if err != nil {
		return err
	}
	return s.quick(cuStreamWaitEvent, s.handle, ev.handle, 0)
}

func (s *stream) event(f symbol, e driver.Event) (*event, error) {
	if err := s.open(f); err != nil {
		return nil, err
	}
	ev, ok := e.(*event)
	if !ok {
		return nil, foreign(s.names[f], e)
	}
	if ev.handle == 0 {
		return nil, closed(s.names[f], "event")
	}
	return ev, nil
}

func (s *stream) Launch(f driver.Function, l *driver.LaunchConfig) error {
	if err := s.open(cuLaunchKernel); err != nil {
		return err
	}
	fn, ok := f.(*function)
	switch {
	case !ok:
		return foreign("cuLaunchKernel", f)
	case fn.module.handle == 0:
		return closed("cuLaunchKernel", "module")
	case len(l.Params) > len(s.params):
		return driver.CUDA("cuLaunchKernel", driver.InvalidValue).Because("kernel %s has %d bytes of parameters, of at most %d", fn.name, len(l.Params), len(s.params))
	}
	extra := uintptr(0)
	if len(l.Params) > 0 {
		s.size = uintptr(copy(s.params[:], l.Params))
		extra = uintptr(unsafe.Pointer(&s.extra))
	}
	var err error
	if l.Dependent {
		s.config.grid, s.config.block, s.config.shared, s.config.stream = l.Grid, l.Block, l.Shared, s.handle
		err = s.quick(cuLaunchKernelEx, uintptr(unsafe.Pointer(&s.config)), fn.handle, 0, extra)
	} else {
		err = s.quick(cuLaunchKernel, fn.handle,
			uintptr(l.Grid[0]), uintptr(l.Grid[1]), uintptr(l.Grid[2]),
			uintptr(l.Block[0]), uintptr(l.Block[1]), uintptr(l.Block[2]),
			uintptr(l.Shared), s.handle, 0, extra)
	}
	runtime.KeepAlive(s)
	if err != nil {
		return because(err, "kernel %s of %s, grid %v, block %v, %d bytes of shared memory, %d of parameters", fn.name, fn.module.name, l.Grid, l.Block, l.Shared, len(l.Params))
	}
	return nil
}

func (s *stream) Synchronize() error {
	if err := s.open(cuStreamSynchronize); err != nil {
		return err
	}
	return s.quick(cuStreamSynchronize, s.handle)
}

func (s *stream) Query() (bool, error) {
	if err := s.open(cuStreamQuery); err != nil {
		return false, err
	}
	switch n := s.code(cuStreamQuery, s.handle); n {
	case 0:
		return true, nil
	case driver.NotReady:
		return false, nil
	default:
		return false, s.fail("cuStreamQuery", n)
	}
}

func (s *stream) Close() error {
	if err := s.open(cuStreamDestroy); err != nil {
		return err
	}
	handle := s.handle
	s.handle = 0
	return s.quick(cuStreamDestroy, handle)
}

// event is a CUDA event.
type event struct {
	*primary
	handle uintptr // 0 when closed
}

func (e *event) Synchronize() error {
	if e.handle == 0 {
		return closed("cuEventSynchronize", "event")
	}
	return e.quick(cuEventSynchronize, e.handle)
}

func (e *event) Elapsed(since driver.Event) (time.Duration, error) {
	start, ok := since.(*event)
	if !ok {
		return 0, foreign("cuEventElapsedTime", since)
	}
	if e.handle == 0 || start.handle == 0 {
		return 0, closed("cuEventElapsedTime", "event")
	}
	var ms float32
	if err := e.call(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), start.handle, e.handle); err != nil {
		return 0, err
	}
	return time.Duration(math.Round(float64(ms) * 1e6)), nil
}

func (e *event) Close() error {
	if e.handle == 0 {
		return closed("cuEventDestroy_v2", "event")
	}
	handle := e.handle
	e.handle = 0
	return e.quick(cuEventDestroy, handle)
}
