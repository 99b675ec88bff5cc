package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/internal/files"
	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// gpu is a device with the thread that calls its driver.
type gpu struct {
	ctx     driver.Context
	ranks   []*rank
	work    chan func() // for the thread; closed when it ends
	modules map[string]driver.Module
	funcs   map[string]*function
	depend  bool // launches may be dependent
	step    step // the active one
}

// openGPU opens a device on a thread of its own.
func openGPU(d *Device, info driver.DeviceInfo) (*gpu, error) {
	if !kernels.Runs(info.Capability[0], info.Capability[1]) {
		return nil, &driver.Error{Call: "open", Text: fmt.Sprintf("compute capability %d.%d is too low; Krait's kernels need 8.0 (Ampere) or later", info.Capability[0], info.Capability[1]), Kind: driver.ErrNoDriver}
	}
	g := &gpu{work: make(chan func()), modules: map[string]driver.Module{}, funcs: map[string]*function{},
		depend: info.DependentLaunch && !d.NoDependent}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		debug.SetPanicOnFault(true) // see files.Guard
		for f := range g.work {
			f()
		}
	}()
	err := g.do(func() error {
		var err error
		if g.ctx, err = d.Driver.Open(info.Index); err != nil {
			return err
		}
		return g.ctx.Bind()
	})
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// do runs f on the GPU's thread. A panic comes back as an error.
func (g *gpu) do(f func() error) error {
	done := make(chan error, 1)
	g.work <- func() {
		defer func() {
			if p := recover(); p != nil {
				done <- files.Recovered(p)
			}
		}()
		done <- f()
	}
	return <-done
}

// function is a kernel, and how much dynamic shared memory it may have so far.
type function struct {
	driver.Function
	shared uint32
}

// freeShared is the shared memory, static and dynamic, that a block may have without asking, in
// bytes.
const freeShared = 48 << 10

func newFunction(f driver.Function) (*function, error) {
	info, err := f.Attributes()
	return &function{f, uint32(max(0, freeShared-info.Shared))}, err
}

// allow raises the kernel's limit of dynamic shared memory to the largest launch so far.
func (f *function) allow(shared uint32) error {
	if shared <= f.shared {
		return nil
	}
	if err := f.SetMaxShared(int(shared)); err != nil {
		return err
	}
	f.shared = shared
	return nil
}

// function returns the kernel of a launch. Its module is compiled on first use.
func (g *gpu) function(l *kernels.Launch) (driver.Function, error) {
	f, err := g.find(l)
	if err != nil {
		return nil, err
	}
	return f.Function, f.allow(l.Shared)
}

// waits reports whether the kernel itself waits for the launch before it (griddepcontrol.wait).
func (g *gpu) waits(l *kernels.Launch) bool { return g.depend && !l.Registered() }

func (g *gpu) find(l *kernels.Launch) (*function, error) {
	key := l.Module + "." + l.Function
	if f, ok := g.funcs[key]; ok {
		return f, nil
	}
	name, text := l.Source()
	if g.waits(l) {
		text = kernels.Dependent(text)
	} else {
		text = kernels.Independent(text)
	}
	m, ok := g.modules[name]
	if !ok {
		if text == nil {
			panic("BUG: there is no kernel " + key)
		}
		var err error
		if m, err = g.ctx.Module(text, l.Module); err != nil {
			return nil, err
		}
		g.modules[name] = m
	}
	f, err := m.Function(l.Function)
	if err != nil {
		return nil, err
	}
	kept, err := newFunction(f)
	if err != nil {
		return nil, err
	}
	g.funcs[key] = kept
	return kept, nil
}

// close gives the device back and ends the thread.
func (g *gpu) close() error {
	var err error
	if g.ctx != nil {
		err = g.do(func() error {
			var errs []error
			for _, m := range g.modules {
				errs = append(errs, m.Close())
			}
			return errors.Join(append(errs, g.ctx.Close())...)
		})
	}
	close(g.work)
	return err
}

// memory is device memory that only grows.
type memory struct {
	ptr   driver.Ptr
	bytes int64
}

// reserve grows the memory to at least that size. Its contents are lost when it moves.
func (m *memory) reserve(g *gpu, bytes int64) (moved bool, err error) {
	if bytes <= m.bytes {
		return false, nil
	}
	if err := m.release(g); err != nil {
		return true, err
	}
	m.ptr, err = g.ctx.Alloc(bytes)
	if err == nil {
		m.bytes = bytes
	}
	return true, err
}

func (m *memory) release(g *gpu) error {
	if m.bytes == 0 {
		return nil
	}
	m.bytes = 0
	return g.ctx.Release(m.ptr)
}

// pinned is host memory that copies go through; it only grows.
type pinned struct{ data []byte }

func (p *pinned) reserve(g *gpu, bytes int64) (moved bool, err error) {
	if bytes <= int64(len(p.data)) {
		return false, nil
	}
	if err := p.release(g); err != nil {
		return true, err
	}
	p.data, err = g.ctx.AllocHost(bytes)
	return true, err
}

func (p *pinned) release(g *gpu) error {
	if p.data == nil {
		return nil
	}
	data := p.data
	p.data = nil
	return g.ctx.ReleaseHost(data)
}
