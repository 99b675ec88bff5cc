// Package driver is what Krait needs of a CUDA driver, as interfaces: devices,
// memory, streams, events, modules, launches, captured graphs, matrix products
// (cuBLAS) and collectives (NCCL). Package nvidia implements it with the
// vendor's libraries, package sim by simulation (with package ptx, which interprets
// kernels), package gorgoniacu through gorgonia.org/cu. They import this package, and it
// none of them; package drivertest holds what they have in common.
//
// # Threads
//
// CUDA's current context belongs to an OS thread. A goroutine that uses a
// context locks its thread ([runtime.LockOSThread]), calls [Context.Bind], and
// may then call everything made from that context. Streams, GEMM handles and
// collectives are used by one thread at a time; only [Collectives.Abort] and
// [Collectives.AsyncError] may be called from any goroutine at any time.
//
// # Errors
//
// Errors are of type *[Error] and name the call. A fault in a kernel or a lost
// device shows in a later call, and in every call on that context from then on.
package driver

import (
	"context"
	"time"
)

// Driver is an implementation of CUDA.
type Driver interface {
	// Name is "cuda", "cuda-sim" or "gorgonia-cu".
	Name() string
	// Versions lists the libraries: the driver, cuBLAS and NCCL.
	Versions() []Version
	// Devices lists the devices, in the order of their numbers.
	Devices() ([]DeviceInfo, error)
	// Open retains the device's primary context: all that open a device share
	// its memory.
	Open(device int) (Context, error)
	// UniqueID makes the name under which the ranks of a group find each other in Join.
	UniqueID() (UniqueID, error)
	// Join makes the group's communicator for one rank, on the device of c. It
	// returns when all ranks have called it, or with an error when ctx ends.
	Join(ctx context.Context, c Context, id UniqueID, ranks, rank int) (Collectives, error)
}

// Version says which library is used, or why there is none.
type Version struct {
	Name    string // "CUDA driver", "cuBLAS", "NCCL"
	Version string // "12.4"; empty if missing
	Path    string // the file, where that is known
	Missing error  // why it cannot be used
}

// Ptr is an address in device memory. Adding bytes to it is fine.
type Ptr uint64

// Context is a device's primary context.
type Context interface {
	Device() DeviceInfo
	// Bind makes the context current on the calling thread, which the caller
	// has locked.
	Bind() error
	// MemInfo counts the bytes of the device's memory.
	MemInfo() (free, total int64, err error)
	// Alloc allocates device memory, aligned to 256 bytes or more. It holds
	// nothing of use.
	Alloc(bytes int64) (Ptr, error)
	// Release frees memory of Alloc. No running work may use it.
	Release(Ptr) error
	// AllocHost allocates pinned host memory, which copies really read and
	// write when they run. Go's collector does not know of it.
	AllocHost(bytes int64) ([]byte, error)
	// ReleaseHost frees what AllocHost gave, the whole slice.
	ReleaseHost([]byte) error
	// Stream makes a queue of work.
	Stream() (Stream, error)
	// Event makes a mark for a place in a stream. Only a timing event can be
	// measured; the others are cheaper.
	Event(timing bool) (Event, error)
	// Module compiles PTX text for the device; name is what errors call it.
	Module(ptx []byte, name string) (Module, error)
	// EnablePeer lets this device read and write the other's memory. That it
	// does already is no error.
	EnablePeer(other Context) error
	// GEMM makes a handle for matrix products.
	GEMM() (GEMM, error)
	// Synchronize waits for all work of the context.
	Synchronize() error
	// Close gives the context back; the last one frees all that was made from
	// it. Close it after everything else.
	Close() error
}

// Stream is a queue of work on a device: its work runs in order, and without
// any order towards other streams but that of events. All methods down to
// Launch put work into the queue and return; none of those allocates memory
// in steady state.
type Stream interface {
	// CopyIn copies from host memory. Pinned memory is read when the copy runs
	// and must stay as it is until then; other memory is read before CopyIn
	// returns.
	CopyIn(dst Ptr, src []byte) error
	// CopyOut copies to host memory. Pinned memory is written when the copy
	// runs; with other memory, CopyOut waits for that.
	CopyOut(dst []byte, src Ptr) error
	// Copy copies within the device.
	Copy(dst, src Ptr, bytes int64) error
	// CopyPeer copies between devices; peer access makes it faster, but is not
	// needed.
	CopyPeer(dst Ptr, dstCtx Context, src Ptr, srcCtx Context, bytes int64) error
	// Fill sets bytes.
	Fill(dst Ptr, value byte, bytes int64) error
	// Record marks this place with the event.
	Record(Event) error
	// Wait lets later work wait for the place where the event was last
	// recorded before this call. An event that never was is not waited for.
	Wait(Event) error
	// Launch runs a kernel. The config may be used again when it returns.
	Launch(f Function, l *LaunchConfig) error

	// BeginCapture lets work of this stream, and of streams that wait for its
	// events, go into a graph instead of running. Until EndCapture, the thread
	// may neither allocate nor free, nor wait for these streams; copies must
	// be with pinned memory; and events recorded before are not to be waited
	// for. What breaks these rules fails, and so does EndCapture then.
	BeginCapture() error
	// EndCapture gives the graph. All streams must be joined by events.
	EndCapture() (Graph, error)

	// Synchronize waits for all work in the stream.
	Synchronize() error
	// Query says whether all work in the stream is done.
	Query() (done bool, err error)
	// Close gives the stream back. Work in it still runs.
	Close() error
}

// Event marks a place in a stream.
type Event interface {
	// Synchronize waits for the place where it was last recorded.
	Synchronize() error
	// Elapsed is the time on the device since another event. Both must be
	// timing events that have been reached.
	Elapsed(since Event) (time.Duration, error)
	Close() error
}

// Module is compiled PTX.
type Module interface {
	// Function finds a kernel.
	Function(name string) (Function, error)
	// Close unloads the module and its functions.
	Close() error
}

// Function is a kernel.
type Function interface {
	Name() string
	Attributes() (FunctionInfo, error)
	// SetMaxShared allows launches with that much dynamic shared memory. It must be called where
	// that and the static shared memory are above 48 KB together.
	SetMaxShared(bytes int) error
}

// FunctionInfo is what the compiler made of a kernel.
type FunctionInfo struct {
	Registers  int // per thread
	Local      int // bytes per thread, mostly spilled registers
	Shared     int // static, bytes per block
	MaxThreads int // per block
}

// MaxParams is the most bytes that a kernel's parameters may take.
const MaxParams = 4096

// LaunchConfig says how a kernel is launched.
type LaunchConfig struct {
	Grid, Block [3]uint32
	Shared      uint32 // dynamic shared memory, bytes
	// Params are the parameters, each at the next offset that its alignment
	// allows (CU_LAUNCH_PARAM_BUFFER_POINTER).
	Params []byte
	// Dependent lets the launch begin before the launch before it in the stream has ended
	// (programmatic dependent launch): its threads wait for that themselves, by
	// griddepcontrol.wait, before they touch memory and before they end. Only for devices that can:
	// see DeviceInfo.
	Dependent bool
	// For says what the launch is for, to those who count.
	For string
}

// Graph is captured work, ready to run as a whole.
type Graph interface {
	// Launch runs it as one piece of work of the stream. Parameters are those
	// of the capture; memory has what it has then.
	Launch(Stream) error
	// Nodes counts the pieces of work in it.
	Nodes() int
	Close() error
}
