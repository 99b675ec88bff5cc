//go:build linux && (amd64 || arm64)

package nvidia

import (
	"bytes"
	"fmt"
	"os"
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// oldest is the version of the driver's interface that is needed: CUDA 12.0,
// which came with driver 525.
const oldest = 12000

// dependent is the version from which launches that overlap can be captured: graphs have
// edges for that since CUDA 12.3.
const dependent = 12030

// The functions of libcuda, under the names that CUDA 12 and 13 both export.
const (
	cuInit symbol = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDeviceGetPCIBusId
	cuDeviceCanAccessPeer
	cuDeviceGetP2PAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuCtxGetCurrent
	cuCtxSynchronize
	cuCtxEnablePeerAccess
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemcpyPeerAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamQuery
	cuStreamWaitEvent
	cuStreamIsCapturing
	cuStreamBeginCapture
	cuStreamEndCapture
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuEventElapsedTime
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuFuncGetAttribute
	cuFuncSetAttribute
	cuLaunchKernel
	cuLaunchKernelEx
	cuGraphInstantiate
	cuGraphGetNodes
	cuGraphDestroy
	cuGraphExecDestroy
	cuGraphLaunch
)

var cudaNames = []string{
	cuInit:                    "cuInit",
	cuDriverGetVersion:        "cuDriverGetVersion",
	cuGetErrorName:            "cuGetErrorName",
	cuGetErrorString:          "cuGetErrorString",
	cuDeviceGetCount:          "cuDeviceGetCount",
	cuDeviceGet:               "cuDeviceGet",
	cuDeviceGetName:           "cuDeviceGetName",
	cuDeviceTotalMem:          "cuDeviceTotalMem_v2",
	cuDeviceGetAttribute:      "cuDeviceGetAttribute",
	cuDeviceGetPCIBusId:       "cuDeviceGetPCIBusId",
	cuDeviceCanAccessPeer:     "cuDeviceCanAccessPeer",
	cuDeviceGetP2PAttribute:   "cuDeviceGetP2PAttribute",
	cuDevicePrimaryCtxRetain:  "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease: "cuDevicePrimaryCtxRelease_v2",
	cuCtxSetCurrent:           "cuCtxSetCurrent",
	cuCtxGetCurrent:           "cuCtxGetCurrent",
	cuCtxSynchronize:          "cuCtxSynchronize",
	cuCtxEnablePeerAccess:     "cuCtxEnablePeerAccess",
	cuMemGetInfo:              "cuMemGetInfo_v2",
	cuMemAlloc:                "cuMemAlloc_v2",
	cuMemFree:                 "cuMemFree_v2",
	cuMemHostAlloc:            "cuMemHostAlloc",
	cuMemFreeHost:             "cuMemFreeHost",
	cuMemcpyHtoDAsync:         "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:         "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:         "cuMemcpyDtoDAsync_v2",
	cuMemcpyPeerAsync:         "cuMemcpyPeerAsync",
	cuMemsetD8Async:           "cuMemsetD8Async",
	cuStreamCreate:            "cuStreamCreate",
	cuStreamDestroy:           "cuStreamDestroy_v2",
	cuStreamSynchronize:       "cuStreamSynchronize",
	cuStreamQuery:             "cuStreamQuery",
	cuStreamWaitEvent:         "cuStreamWaitEvent",
	cuStreamIsCapturing:       "cuStreamIsCapturing",
	cuStreamBeginCapture:      "cuStreamBeginCapture_v2",
	cuStreamEndCapture:        "cuStreamEndCapture",
	cuEventCreate:             "cuEventCreate",
	cuEventDestroy:            "cuEventDestroy_v2",
	cuEventRecord:             "cuEventRecord",
	cuEventSynchronize:        "cuEventSynchronize",
	cuEventElapsedTime:        "cuEventElapsedTime",
	cuModuleLoadDataEx:        "cuModuleLoadDataEx",
	cuModuleUnload:            "cuModuleUnload",
	cuModuleGetFunction:       "cuModuleGetFunction",
	cuFuncGetAttribute:        "cuFuncGetAttribute",
	cuFuncSetAttribute:        "cuFuncSetAttribute",
	cuLaunchKernel:            "cuLaunchKernel",
	cuLaunchKernelEx:          "cuLaunchKernelEx",
	cuGraphInstantiate:        "cuGraphInstantiateWithFlags",
	cuGraphGetNodes:           "cuGraphGetNodes",
	cuGraphDestroy:            "cuGraphDestroy",
	cuGraphExecDestroy:        "cuGraphExecDestroy",
	cuGraphLaunch:             "cuGraphLaunch",
}

// cuda is the driver.
type cuda struct {
	library
	version int // 12040
	search  search
	blas    onceLibrary
	nccl    onceLibrary
	pinned  blocks
}

// New opens NVIDIA's driver. Its error is an ErrNoDriver, and says what is
// missing.
func New() (driver.Driver, error) {
	d, err := load(usual())
	if err != nil {
		return nil, err
	}
	return d, nil
}

func load(s search) (*cuda, error) {
	no := func(format string, args ...any) error {
		e := driver.CUDA("open libcuda.so.1", 3)
		e.Code, e.Name, e.Text = 0, "", fmt.Sprintf(format, args...)
		return e
	}
	handle, err := s.open("libcuda.so.1")
	if err != nil {
		return nil, no("there is no NVIDIA driver: %v", err)
	}
	d := &cuda{search: s}
	// The version first: an old driver lacks functions, too.
	d.library = library{names: cudaNames[:cuDriverGetVersion+1], fail: driver.CUDA}
	if missing := d.bind(handle); missing != "" {
		return nil, no("libcuda.so.1 lacks %s", missing)
	}
	if err := loadEagerly(); err != nil {
		return nil, no("%v", err)
	}
	if err := d.call(cuInit, 0); err != nil {
		if e := err.(*driver.Error); e.Kind == nil {
			e.Kind = driver.ErrNoDriver
		}
		return nil, err
	}
	var version int32
	if err := d.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	d.version = int(version)
	if d.version < oldest {
		return nil, no("the driver is too old: it is for CUDA %s, and %s is needed", release(d.version), release(oldest))
	}
	d.names, d.fail = cudaNames, d.failure
	if missing := d.bind(handle); missing != "" {
		return nil, no("%s, of CUDA %s, lacks %s", d.path, release(d.version), missing)
	}
	return d, nil
}

// loadEagerly makes cuInit choose eager loading, unless the user has chosen: libraries then load
// their kernels with their module. A kernel of cuBLAS that is loaded when it is first launched may
// wait for all that runs on the GPU's group, and there for a rank that waits for this launch.
func loadEagerly() error {
	const loading = "CUDA_MODULE_LOADING"
	if os.Getenv(loading) != "" {
		return nil
	}
	return os.Setenv(loading, "EAGER") // purego, as cgo, sets libc's environment, too
}

// failure is the error for a code; those that Krait does not know, the driver
// does.
func (d *cuda) failure(call string, code int) *driver.Error {
	e := driver.CUDA(call, code)
	if e.Name == "CUDA_ERROR_?" {
		e.Name, e.Text = d.describe(cuGetErrorName, code), d.describe(cuGetErrorString, code)
	}
	return e
}

func (d *cuda) describe(f symbol, code int) string {
	p := new(*byte)
	if d.call(f, uintptr(code), uintptr(unsafe.Pointer(p))) != nil {
		return "?"
	}
	return text(*p)
}

func release(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

// Name is "cuda".
func (d *cuda) Name() string { return "cuda" }

// Versions lists the libraries.
func (d *cuda) Versions() []driver.Version {
	return []driver.Version{
		{Name: "CUDA driver", Version: release(d.version), Path: d.path},
		d.blasVersion(),
		d.ncclVersion(),
	}
}

// Devices lists the devices.
func (d *cuda) Devices() ([]driver.DeviceInfo, error) {
	var n int32
	if err := d.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	devices := make([]driver.DeviceInfo, n)
	for i := range devices {
		var err error
		if devices[i], err = d.device(i, int(n)); err != nil {
			return nil, because(err, "device %d", i)
		}
	}
	return devices, nil
}

// device asks for everything about a device among count.
func (d *cuda) device(index, count int) (info driver.DeviceInfo, err error) {
	q := query{d: d}
	if err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&q.device)), uintptr(index)); err != nil {
		return info, err
	}
	var memory uint64
	var name, pci [256]byte
	q.ask(d.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&memory)), uintptr(q.device)))
	q.ask(d.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), uintptr(q.device)))
	q.ask(d.call(cuDeviceGetPCIBusId, uintptr(unsafe.Pointer(&pci)), uintptr(len(pci)), uintptr(q.device)))
	info = driver.DeviceInfo{
		Index:      index,
		Name:       line(name[:]),
		PCI:        line(pci[:]),
		Memory:     int64(memory),
		ClockKHz:   q.attribute(13),
		SMs:        q.attribute(16),
		Capability: [2]int{q.attribute(75), q.attribute(76)},
		SharedMax:  q.attribute(97),
	}
	info.DependentLaunch = info.Capability[0] >= 9 && d.version >= dependent
	for other := range count {
		if other != index {
			info.Links = append(info.Links, q.link(other))
		}
	}
	return info, q.err
}

// query asks a device for numbers, and keeps the first error.
type query struct {
	d      *cuda
	device int32
	err    error
}

func (q *query) ask(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) attribute(which int) int {
	var n int32
	q.ask(q.d.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&n)), uintptr(which), uintptr(q.device)))
	return int(n)
}

func (q *query) link(index int) driver.Link {
	var other, can, rank, atomics int32
	q.ask(q.d.call(cuDeviceGet, uintptr(unsafe.Pointer(&other)), uintptr(index)))
	q.ask(q.d.call(cuDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), uintptr(q.device), uintptr(other)))
	q.ask(q.d.call(cuDeviceGetP2PAttribute, uintptr(unsafe.Pointer(&rank)), 1, uintptr(q.device), uintptr(other)))
	q.ask(q.d.call(cuDeviceGetP2PAttribute, uintptr(unsafe.Pointer(&atomics)), 3, uintptr(q.device), uintptr(other)))
	return driver.Link{Device: index, Access: can != 0, Atomics: atomics != 0, Rank: int(rank)}
}

// line is a C string in a buffer.
func line(buffer []byte) string {
	s, _, _ := bytes.Cut(buffer, []byte{0})
	return string(s)
}
