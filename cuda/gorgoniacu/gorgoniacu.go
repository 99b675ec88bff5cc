//go:build gorgonia_cu

package gorgoniacu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/krait-ml/krait/cuda/driver"
)

// cuda is the driver, which has no state.
type cuda struct{}

// New gives the driver; gorgonia.org/cu has initialized it, or ended the
// program.
func New() (driver.Driver, error) { return cuda{}, nil }

// failure is the error of a call of gorgonia.org/cu, whose errors are CUDA's
// numbers.
func failure(call string, err error) error {
	if err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return driver.CUDA(call, int(v.Int()))
	}
	return &driver.Error{Call: call, Text: err.Error(), Cause: err}
}

func unsupported(call, what string) error {
	return &driver.Error{
		Call: call, Text: what + " not available through gorgonia.org/cu",
		Hint: "Use --device cuda.", Kind: driver.ErrUnsupported,
	}
}

func foreign(call string, object any) error {
	return driver.CUDA(call, driver.InvalidHandle).Because("%T is not of this driver", object)
}

// Name is "gorgonia-cu".
func (cuda) Name() string { return "gorgonia-cu" }

// Versions lists the driver, and what is not there.
func (cuda) Versions() []driver.Version {
	v := cu.Version()
	return []driver.Version{
		{Name: "CUDA driver", Version: fmt.Sprintf("%d.%d", v/1000, v%1000/10)},
		{Name: "cuBLAS", Missing: unsupported("open cuBLAS", "cuBLAS is")},
		{Name: "NCCL", Missing: unsupported("open NCCL", "NCCL is")},
	}
}

// Devices lists the devices.
func (cuda) Devices() ([]driver.DeviceInfo, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return nil, failure("cuDeviceGetCount", err)
	}
	var list []driver.DeviceInfo
	for i := range n {
		info, err := describe(i, n)
		if err != nil {
			return nil, failure("cuDeviceGetAttribute", err)
		}
		list = append(list, info)
	}
	return list, nil
}

func describe(index, count int) (info driver.DeviceInfo, err error) {
	dev, err := cu.GetDevice(index)
	if err != nil {
		return info, err
	}
	var problems []error
	attribute := func(a cu.DeviceAttribute) int {
		n, err := dev.Attribute(a)
		problems = append(problems, err)
		return n
	}
	info = driver.DeviceInfo{
		Index:      index,
		Capability: [2]int{attribute(cu.ComputeCapabilityMajor), attribute(cu.ComputeCapabilityMinor)},
		SMs:        attribute(cu.MultiprocessorCount),
		ClockKHz:   attribute(cu.ClockRate),
		SharedMax:  48 << 10, // there is no way to ask for more
		PCI:        fmt.Sprintf("%04x:%02x:%02x.0", attribute(cu.PciDomainID), attribute(cu.PciBusID), attribute(cu.PciDeviceID)),
	}
	name, err1 := dev.Name()
	memory, err2 := dev.TotalMem()
	info.Name, info.Memory = name, memory
	problems = append(problems, err1, err2)
	for other := range count {
		if other == index {
			continue
		}
		peer, err := cu.GetDevice(other)
		access, err1 := dev.CanAccessPeer(peer)
		rank, err2 := dev.P2PAttribute(cu.PerformanceRank, peer)
		atomics, err3 := dev.P2PAttribute(cu.P2PNativeAomicSupported, peer)
		problems = append(problems, err, err1, err2, err3)
		info.Links = append(info.Links, driver.Link{Device: other, Access: access != 0, Atomics: atomics != 0, Rank: rank})
	}
	for _, err := range problems {
		if err != nil {
			return info, err
		}
	}
	return info, nil
}

// UniqueID is not available.
func (cuda) UniqueID() (id driver.UniqueID, err error) {
	return id, unsupported("ncclGetUniqueId", "NCCL is")
}

// Join is not available.
func (cuda) Join(context.Context, driver.Context, driver.UniqueID, int, int) (driver.Collectives, error) {
	return nil, unsupported("ncclCommInitRank", "NCCL is")
}

// primary is a device's primary context, retained once.
type primary struct {
	info driver.DeviceInfo
	dev  cu.Device
	ctx  cu.CUContext
}

// Open retains the device's primary context.
func (d cuda) Open(index int) (driver.Context, error) {
	list, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(list) {
		return nil, driver.CUDA("cuDeviceGet", driver.InvalidDevice).Because("device %d of %d", index, len(list))
	}
	c := &primary{info: list[index]}
	if c.dev, err = cu.GetDevice(index); err != nil {
		return nil, failure("cuDeviceGet", err)
	}
	if c.ctx, err = c.dev.RetainPrimaryCtx(); err != nil {
		return nil, failure("cuDevicePrimaryCtxRetain", err)
	}
	return c, nil
}

func (c *primary) Device() driver.DeviceInfo { return c.info }

func (c *primary) Bind() error { return failure("cuCtxSetCurrent", cu.SetCurrentContext(c.ctx)) }

func (c *primary) MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, failure("cuMemGetInfo_v2", err)
}

func (c *primary) Alloc(bytes int64) (driver.Ptr, error) {
	p, err := cu.MemAlloc(bytes)
	if err != nil {
		err = failure("cuMemAlloc_v2", err)
		if e, ok := err.(*driver.Error); ok {
			e.Because("%s asked on device %d", driver.Bytes(bytes), c.info.Index)
		}
		return 0, err
	}
	return driver.Ptr(p), nil
}

func (c *primary) Release(p driver.Ptr) error {
	return failure("cuMemFree_v2", cu.MemFree(cu.DevicePtr(p)))
}

// AllocHost gives memory that is not pinned: gorgonia.org/cu has none. Copies read
// it earlier than they need to, or wait until they have written it.
func (c *primary) AllocHost(bytes int64) ([]byte, error) { return make([]byte, bytes), nil }

func (c *primary) ReleaseHost([]byte) error { return nil }

func (c *primary) GEMM() (driver.GEMM, error) {
	return nil, unsupported("cublasGemmEx", "products of mixed formats are")
}

func (c *primary) Stream() (driver.Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return nil, failure("cuStreamCreate", err)
	}
	return &stream{c: c, s: s}, nil
}

func (c *primary) Event(timing bool) (driver.Event, error) {
	flags := cu.DisableTiming
	if timing {
		flags = cu.DefaultEvent
	}
	e, err := cu.MakeEvent(flags)
	if err != nil {
		return nil, failure("cuEventCreate", err)
	}
	return &event{e: e}, nil
}

func (c *primary) EnablePeer(other driver.Context) error {
	o, ok := other.(*primary)
	if !ok {
		return foreign("cuCtxEnablePeerAccess", other)
	}
	err := o.ctx.EnablePeerAccess(0)
	if errors.Is(err, cu.PeerAccessAlreadyEnabled) {
		return nil
	}
	return failure("cuCtxEnablePeerAccess", err)
}

func (c *primary) Synchronize() error { return failure("cuCtxSynchronize", cu.Synchronize()) }

func (c *primary) Close() error {
	return failure("cuDevicePrimaryCtxRelease_v2", c.dev.ReleasePrimaryCtx())
}

// stream is a CUDA stream.
type stream struct {
	c      *primary
	s      cu.Stream
	closed bool
}

// open checks that the stream is not closed.
func (s *stream) open(call string) error {
	if s.closed {
		return driver.CUDA(call, driver.InvalidHandle).Because("the stream is closed")
	}
	return nil
}

func (s *stream) CopyIn(dst driver.Ptr, src []byte) error {
	if err := s.open("cuMemcpyHtoDAsync_v2"); err != nil || len(src) == 0 {
		return err
	}
	return failure("cuMemcpyHtoDAsync_v2", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), int64(len(src)), s.s))
}

func (s *stream) CopyOut(dst []byte, src driver.Ptr) error {
	if err := s.open("cuMemcpyDtoHAsync_v2"); err != nil || len(dst) == 0 {
		return err
	}
	return failure("cuMemcpyDtoHAsync_v2", cu.MemcpyDtoHAsync(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), int64(len(dst)), s.s))
}

func (s *stream) Copy(dst, src driver.Ptr, bytes int64) error {
	if err := s.open("cuMemcpyDtoDAsync_v2"); err != nil || bytes == 0 {
		return err
	}
	return failure("cuMemcpyDtoDAsync_v2", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), bytes, s.s))
}

func (s *stream) CopyPeer(dst driver.Ptr, dstCtx driver.Context, src driver.Ptr, srcCtx driver.Context, bytes int64) error {
	if err := s.open("cuMemcpyPeerAsync"); err != nil || bytes == 0 {
		return err
	}
	to, ok1 := dstCtx.(*primary)
	from, ok2 := srcCtx.(*primary)
	if !ok1 || !ok2 {
		return foreign("cuMemcpyPeerAsync", dstCtx)
	}
	return failure("cuMemcpyPeerAsync", cu.MemcpyPeerAsync(cu.DevicePtr(dst), to.ctx, cu.DevicePtr(src), from.ctx, bytes, s.s))
}

func (s *stream) Fill(dst driver.Ptr, value byte, bytes int64) error {
	if err := s.open("cuMemsetD8Async"); err != nil || bytes == 0 {
		return err
	}
	return failure("cuMemsetD8Async", cu.MemsetD8Async(cu.DevicePtr(dst), value, bytes, s.s))
}

func (s *stream) Record(e driver.Event) error {
	ev, err := s.event("cuEventRecord", e)
	if err != nil {
		return err
	}
	return failure("cuEventRecord", ev.e.Record(s.s))
}

func (s *stream) Wait(e driver.Event) error {
	ev, err := s.event("cuStreamWaitEvent", e)
	if err != nil {
		return err
	}
	return failure("cuStreamWaitEvent", s.s.Wait(ev.e, 0))
}

func (s *stream) event(call string, e driver.Event) (*event, error) {
	if err := s.open(call); err != nil {
		return nil, err
	}
	ev, ok := e.(*event)
	if !ok {
		return nil, foreign(call, e)
	}
	return ev, ev.open(call)
}

// Launch hands over the parameters one by one, as gorgonia.org/cu wants them.
// It copies each as 8 bytes, one after the other: what is longer, and comes
// last, may go on in pieces.
func (s *stream) Launch(f driver.Function, l *driver.LaunchConfig) error {
	if err := s.open("cuLaunchKernel"); err != nil {
		return err
	}
	fn, ok := f.(*function)
	switch {
	case !ok:
		return foreign("cuLaunchKernel", f)
	case l.Dependent:
		return unsupported("cuLaunchKernelEx", "a launch that overlaps with the one before is")
	}
	block := append(append([]byte(nil), l.Params...), make([]byte, 8)...)
	var pieces []unsafe.Pointer
	for _, p := range fn.params {
		if p.offset+p.size > len(l.Params) {
			return driver.CUDA("cuLaunchKernel", driver.InvalidValue).Because("kernel %s: %d bytes of parameters are too few", fn.name, len(l.Params))
		}
		for at := 0; at < p.size; at += 8 {
			pieces = append(pieces, unsafe.Pointer(&block[p.offset+at]))
		}
	}
	err := fn.f.Launch(int(l.Grid[0]), int(l.Grid[1]), int(l.Grid[2]), int(l.Block[0]), int(l.Block[1]), int(l.Block[2]), int(l.Shared), s.s, pieces)
	return failure("cuLaunchKernel", err)
}

func (s *stream) BeginCapture() error {
	return unsupported("cuStreamBeginCapture_v2", "graphs are")
}

func (s *stream) EndCapture() (driver.Graph, error) {
	return nil, unsupported("cuStreamEndCapture", "graphs are")
}

func (s *stream) Synchronize() error {
	if err := s.open("cuStreamSynchronize"); err != nil {
		return err
	}
	return failure("cuStreamSynchronize", s.s.Synchronize())
}

func (s *stream) Query() (bool, error) {
	if err := s.open("cuStreamQuery"); err != nil {
		return false, err
	}
	err := s.s.Query()
	if errors.Is(err, cu.NotReady) {
		return false, nil
	}
	return err == nil, failure("cuStreamQuery", err)
}

func (s *stream) Close() error {
	if err := s.open("cuStreamDestroy_v2"); err != nil {
		return err
	}
	s.closed = true
	return failure("cuStreamDestroy_v2", s.s.Destroy())
}

// event is a CUDA event.
type event struct {
	e      cu.Event
	closed bool
}

func (e *event) open(call string) error {
	if e.closed {
		return driver.CUDA(call, driver.InvalidHandle).Because("the event is closed")
	}
	return nil
}

func (e *event) Synchronize() error {
	if err := e.open("cuEventSynchronize"); err != nil {
		return err
	}
	return failure("cuEventSynchronize", e.e.Synchronize())
}

func (e *event) Elapsed(since driver.Event) (time.Duration, error) {
	start, ok := since.(*event)
	if !ok {
		return 0, foreign("cuEventElapsedTime", since)
	}
	if err := errors.Join(e.open("cuEventElapsedTime"), start.open("cuEventElapsedTime")); err != nil {
		return 0, err
	}
	ms, err := start.e.Elapsed(e.e)
	return time.Duration(math.Round(ms * 1e6)), failure("cuEventElapsedTime", err)
}

func (e *event) Close() error {
	if err := e.open("cuEventDestroy_v2"); err != nil {
		return err
	}
	e.closed = true
	return failure("cuEventDestroy_v2", cu.DestroyEvent(&e.e))
}

// module is compiled PTX, with its text, which says how parameters lie.
type module struct {
	m    cu.Module
	name string
	ptx  string
}

func (c *primary) Module(ptx []byte, name string) (driver.Module, error) {
	text := strings.TrimRight(string(ptx), "\x00")
	log := make([]byte, 8192)
	m, err := cu.LoadDataEx(text, &cu.JITErrorLogBuffer{Buffer: log})
	if err != nil {
		err = failure("cuModuleLoadDataEx", err)
		if e, ok := err.(*driver.Error); ok {
			said, _, _ := strings.Cut(string(log), "\x00")
			e.Because("module %s\n%s", name, strings.TrimSpace(said))
		}
		return nil, err
	}
	return &module{m: m, name: name, ptx: text}, nil
}

func (m *module) Function(name string) (driver.Function, error) {
	f, err := m.m.Function(name)
	if err != nil {
		err = failure("cuModuleGetFunction", err)
		if e, ok := err.(*driver.Error); ok {
			e.Because("kernel %s in module %s", name, m.name)
		}
		return nil, err
	}
	params, err := paramsOf(m.ptx, name)
	if err != nil {
		return nil, &driver.Error{Call: "cuModuleGetFunction", Text: err.Error(), Hint: "Use --device cuda.", Kind: driver.ErrUnsupported}
	}
	return &function{f: f, name: name, params: params}, nil
}

func (m *module) Close() error { return failure("cuModuleUnload", m.m.Unload()) }

// function is a kernel.
type function struct {
	f      cu.Function
	name   string
	params []param
}

func (f *function) Name() string { return f.name }

func (f *function) Attributes() (info driver.FunctionInfo, err error) {
	for _, q := range []struct {
		attribute cu.FunctionAttribute
		into      *int
	}{{cu.FnMaxThreadsPerBlock, &info.MaxThreads}, {cu.SharedSizeBytes, &info.Shared}, {cu.LocalSizeBytes, &info.Local}, {cu.NumRegs, &info.Registers}} {
		if *q.into, err = f.f.Attribute(q.attribute); err != nil {
			return info, failure("cuFuncGetAttribute", err)
		}
	}
	return info, nil
}

func (f *function) SetMaxShared(bytes int) error {
	if bytes <= 48<<10 {
		return nil
	}
	return unsupported("cuFuncSetAttribute", "more than 48 KB of shared memory is")
}
