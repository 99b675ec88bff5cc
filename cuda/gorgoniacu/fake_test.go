//go:build gorgonia_cu && linux && (amd64 || arm64)

package gorgoniacu_test

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/cuda/sim"
)

// fake answers the calls of testdata/libcuda.c by a simulated machine.
type fake struct {
	mu      sync.Mutex
	on      driver.Driver
	objects map[uintptr]any          // by handle
	opened  map[int][]driver.Context // by device: each retain
	current map[int]int              // the device of an OS thread
}

// function is a kernel, with how its parameters lie.
type function struct {
	driver.Function
	entry *ptx.Entry
}

// module is a loaded module, twice.
type module struct {
	driver.Module
	parsed *ptx.Module
}

// theFake stands behind the library of this process.
var theFake fake

// simulate lets the library answer as a simulated machine. If the library is not
// testdata/libcuda.c it is NVIDIA's, which answers itself.
func simulate(t testing.TB, o sim.Options) *sim.Driver {
	t.Helper()
	if !connect() {
		t.Log("libcuda.so.1 is not the stand-in: what follows is of the GPU")
		return nil
	}
	machine := sim.New(o)
	theFake.mu.Lock()
	defer theFake.mu.Unlock()
	theFake.on, theFake.objects, theFake.opened, theFake.current = machine, map[uintptr]any{}, map[int][]driver.Context{}, map[int]int{}
	return machine
}

// connect gives the library its answers, once.
var connect = sync.OnceValue(func() bool {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW)
	if err != nil {
		return false
	}
	give, err := purego.Dlsym(lib, "krait_answer")
	if err != nil {
		return false
	}
	purego.SyscallN(give, purego.NewCallback(func(call *byte, args *[11]uintptr) uintptr {
		return theFake.answer(text(call), args)
	}))
	return true
})

// answer is the code that a call returns. Only the maps are under the lock: a wait
// may be for another thread.
func (f *fake) answer(call string, args *[11]uintptr) uintptr {
	does, ok := answers[call]
	if !ok {
		panic("the stand-in has no answer to " + call)
	}
	err := does(f, args)
	if err == nil {
		return 0
	}
	var e *driver.Error
	if !errors.As(err, &e) || e.Code == 0 {
		panic(err)
	}
	return uintptr(e.Code)
}

// put gives an object a handle, at an address.
func (f *fake) put(at uintptr, object any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	handle := uintptr(0x1000 + 16*len(f.objects))
	f.objects[handle] = object
	store(at, handle)
}

// of is the object of a handle; a wrong one panics.
func of[T any](f *fake, handle uintptr) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[handle].(T)
}

// contextOf is the context of a device, which is open.
func (f *fake) contextOf(device int) (driver.Context, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if list := f.opened[device]; len(list) > 0 {
		return list[len(list)-1], nil
	}
	return nil, driver.CUDA("", driver.InvalidContext)
}

// context is that of the calling thread.
func (f *fake) context() (driver.Context, error) {
	f.mu.Lock()
	device, ok := f.current[syscall.Gettid()]
	f.mu.Unlock()
	if !ok {
		return nil, driver.CUDA("", driver.InvalidContext)
	}
	return f.contextOf(device)
}

// A context's handle is its device's number and one.
func contextHandle(device int) uintptr { return uintptr(device) + 1 }

func (f *fake) info(device uintptr) driver.DeviceInfo {
	list, _ := f.on.Devices()
	return list[device]
}

func (f *fake) link(device, peer uintptr) driver.Link {
	l, _ := f.info(device).LinkTo(int(peer))
	return l
}

// store puts a value where C has one.
func store[T any](at uintptr, v T) { *(*T)(pointer(at)) = v }

// pointer is an address of C as a pointer.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

func bytes(at, n uintptr) []byte { return unsafe.Slice((*byte)(pointer(at)), n) }

// text is a copy of a string of C, which frees it.
func text(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

func number(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
