package cuda

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/nvidia"
	"github.com/krait-ml/krait/cuda/sim"
)

// onDevice is KRAIT_TEST_DEVICE: "" for the interpreter, or the device on which the
// tests run the kernels: cuda, a real GPU; cuda-sim, to test this file.
var onDevice = os.Getenv("KRAIT_TEST_DEVICE")

// memory is where a test's tensors are and its kernels run.
type memory interface {
	Alloc(bytes int64) (uint64, error)
	Write(addr uint64, data []byte) error
	Read(addr uint64, data []byte) error
}

// gpu is the first device of a driver, with the thread that calls it.
type gpu struct {
	driver.Context
	stream driver.Stream
	work   chan func()
	behind bool // a launch that was not waited for is the last thing in the stream

	modules map[string]driver.Module
	funcs   map[string]driver.Function
}

// theGPU is opened by the first test that needs it, and by all that must not
// run without one: that is an error, not a reason to skip.
var theGPU = sync.OnceValues(func() (*gpu, error) {
	var d driver.Driver
	var err error
	switch name, _, _ := strings.Cut(onDevice, ":"); name {
	case "cuda":
		d, err = nvidia.New()
	case "cuda-sim":
		d = sim.New(sim.Options{Capability: [2]int{9, 0}})
	default:
		err = fmt.Errorf("KRAIT_TEST_DEVICE is %q: there are cuda and cuda-sim", onDevice)
	}
	if err != nil {
		return nil, err
	}
	return openGPU(d)
})

func openGPU(d driver.Driver) (*gpu, error) {
	g := &gpu{work: make(chan func()), modules: map[string]driver.Module{}, funcs: map[string]driver.Function{}}
	go func() {
		runtime.LockOSThread()
		for f := range g.work {
			f()
		}
	}()
	return g, g.do(func() (err error) {
		if g.Context, err = d.Open(0); err != nil {
			return err
		}
		if err := g.Bind(); err != nil {
			return err
		}
		g.stream, err = g.Stream()
		return err
	})
}

func (g *gpu) do(f func() error) error {
	done := make(chan error)
	g.work <- func() { done <- f() }
	return <-done
}

// launch runs a kernel. One that depends may begin before a launch right before it has ended;
// others are waited for.
func (g *gpu) launch(l *Launch, depends bool) error {
	return g.do(func() error {
		depends = depends && g.Device().DependentLaunch
		f, err := g.function(l, depends)
		if err == nil {
			err = g.stream.Launch(f, &driver.LaunchConfig{Grid: l.Grid, Block: l.Block, Shared: l.Shared, Params: l.Params, Dependent: depends && g.behind})
		}
		if g.behind = depends; err != nil || depends {
			return err
		}
		return g.stream.Synchronize()
	})
}

// function finds a kernel, which may have all shared memory.
func (g *gpu) function(l *Launch, depends bool) (driver.Function, error) {
	name, text := l.Source()
	if depends {
		name, text = name+" dependent", Dependent(text)
	} else {
		text = Independent(text)
	}
	key := name + "." + l.Function
	if f := g.funcs[key]; f != nil {
		return f, g.allow(f, l)
	}
	m := g.modules[name]
	if m == nil {
		var err error
		if m, err = g.Module(text, l.Module); err != nil {
			return nil, err
		}
		g.modules[name] = m
	}
	f, err := m.Function(l.Function)
	if err != nil {
		return nil, err
	}
	g.funcs[key] = f
	return f, g.allow(f, l)
}

func (g *gpu) allow(f driver.Function, l *Launch) error {
	info, err := f.Attributes()
	if err != nil || int(l.Shared)+info.Shared <= 48<<10 {
		return err
	}
	return f.SetMaxShared(int(l.Shared))
}

// gpuMemory is what a test has allocated on a GPU.
type gpuMemory struct {
	*gpu
	mine []zone
}

// zone is an allocation, which has a guard before what a test gets, and one behind.
type zone struct {
	at    driver.Ptr
	bytes int64 // without guards
}

const guardBytes = 1 << 10

// Alloc fills the memory and its guards with NaNs, which show where a kernel reads memory that was
// never written.
func (m *gpuMemory) Alloc(bytes int64) (at uint64, err error) {
	err = m.do(func() error {
		p, err := m.Context.Alloc(bytes + 2*guardBytes)
		if err != nil {
			return err
		}
		at, m.mine = uint64(p)+guardBytes, append(m.mine, zone{p, bytes})
		m.behind = false
		return m.stream.Fill(p, 0xff, bytes+2*guardBytes)
	})
	return at, err
}

func (m *gpuMemory) Write(addr uint64, data []byte) error {
	return m.do(func() error {
		m.behind = false
		if err := m.stream.CopyIn(driver.Ptr(addr), data); err != nil {
			return err
		}
		return m.stream.Synchronize()
	})
}

func (m *gpuMemory) Read(addr uint64, data []byte) error {
	return m.do(func() error {
		m.behind = false
		if err := m.stream.CopyOut(data, driver.Ptr(addr)); err != nil {
			return err
		}
		return m.stream.Synchronize()
	})
}

// finish waits for all launches, and fails where one has written into a guard.
func (m *gpuMemory) finish() error {
	guard := make([]byte, guardBytes)
	for _, z := range m.mine {
		for _, at := range []uint64{uint64(z.at), uint64(z.at) + guardBytes + uint64(z.bytes)} {
			if err := m.Read(at, guard); err != nil {
				return err
			}
			for i, b := range guard {
				if b != 0xff {
					return fmt.Errorf("byte %d was written of an allocation of %d bytes", int64(at)+int64(i)-int64(z.at)-guardBytes, z.bytes)
				}
			}
		}
	}
	return nil
}

func (m *gpuMemory) release() {
	_ = m.do(func() error {
		_ = m.stream.Synchronize() // Alloc's fills
		for _, z := range m.mine {
			_ = m.Release(z.at) // after a fault it cannot be; the test has said so
		}
		return nil
	})
}
