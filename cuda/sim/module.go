package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// module is parsed PTX.
type module struct {
	*primary
	name   string
	parsed *ptx.Module
	closed bool
}

// Module parses PTX. An instruction that the interpreter does not know is an error here.
func (c *contextHandle) Module(text []byte, name string) (driver.Module, error) {
	const call = "cuModuleLoadDataEx"
	if err := c.enterWithPeers(call); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	parsed, err := parse(name, string(text))
	if err != nil {
		e := driver.CUDA(call, driver.InvalidPTX).Because("%v", err)
		e.Cause = err
		return nil, e
	}
	if on := c.info.Capability; parsed.Target() > 10*on[0]+on[1] {
		return nil, driver.CUDA(call, driver.InvalidPTX).Because("%s is for sm_%d, and device %d has compute capability %d.%d", name, parsed.Target(), c.info.Index, on[0], on[1])
	}
	m := &module{primary: c.primary, name: name, parsed: parsed}
	for _, kernel := range parsed.Entries() {
		if e, _ := parsed.Entry(kernel); e.SharedBytes() > defaultShared {
			return nil, driver.CUDA(call, driver.InvalidPTX).Because("%s: kernel %s has %d bytes of static shared memory; the assembler takes at most %d, and more must be dynamic",
				name, kernel, e.SharedBytes(), defaultShared)
		}
	}
	c.made(m, "module %s", name)
	if meter := c.o.Meter; meter != nil {
		for _, kernel := range parsed.Entries() {
			e, _ := parsed.Entry(kernel)
			meter.Compiled = append(meter.Compiled, Compiled{name, kernel, e.Instrs()})
		}
	}
	return m, nil
}

// source is PTX under a name, which faults in it give.
type source struct{ name, text string }

// sources has what was parsed, of type *ptx.Module: those who open many machines have
// the same few modules in all.
var sources sync.Map

func parse(name, text string) (*ptx.Module, error) {
	key := source{name, text}
	if m, ok := sources.Load(key); ok {
		return m.(*ptx.Module).Copy(), nil
	}
	m, err := ptx.Parse(name, text)
	if err != nil {
		return nil, err
	}
	sources.Store(key, m)
	return m.Copy(), nil
}

func (m *module) Function(name string) (driver.Function, error) {
	const call = "cuModuleGetFunction"
	if err := m.enter(call); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if m.closed {
		return nil, closedError(call, m)
	}
	entry, ok := m.parsed.Entry(name)
	if !ok {
		return nil, driver.CUDA(call, driver.NotFound).Because("kernel %s in module %s", name, m.name)
	}
	return &function{module: m, name: name, entry: entry, dynamic: max(0, defaultShared-entry.SharedBytes()), registers: m.registersOf(name)}, nil
}

func (m *module) Close() error { return m.shutAlone("cuModuleUnload", m, &m.closed) }

// defaultShared is how much shared memory a block may have without SetMaxShared.
const defaultShared = 48 << 10

// function is a kernel.
type function struct {
	module  *module
	name    string
	entry   *ptx.Entry
	dynamic int // most dynamic shared memory

	registers int // of a thread; 0: not known
}

func (m *module) registersOf(kernel string) int {
	if m.o.Registers == nil {
		return 0
	}
	return m.o.Registers(m.name, kernel, m.info.Capability)
}

func (f *function) Name() string { return f.name }

// Attributes: the interpreter has no registers to count; others may know them.
func (f *function) Attributes() (driver.FunctionInfo, error) {
	const call = "cuFuncGetAttribute"
	if err := f.module.enter(call); err != nil {
		return driver.FunctionInfo{}, err
	}
	defer f.module.mu.Unlock()
	return driver.FunctionInfo{Registers: f.registers, Shared: f.entry.SharedBytes(), MaxThreads: maxThreads}, nil
}

func (f *function) SetMaxShared(bytes int) error {
	const call = "cuFuncSetAttribute"
	m := f.module
	if err := m.enter(call); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if bytes < 0 || bytes+f.entry.SharedBytes() > m.info.SharedMax {
		return driver.CUDA(call, driver.InvalidValue).Because("kernel %s asks %d bytes of shared memory besides %d; blocks of this device have at most %d",
			f.name, bytes, f.entry.SharedBytes(), m.info.SharedMax)
	}
	f.dynamic = bytes
	return nil
}

// maxThreads is the most threads of a block.
const maxThreads = 1024

// check says what of a launch the device does not allow.
func (f *function) check(l *driver.LaunchConfig) error {
	wrong := func(format string, args ...any) error {
		e := driver.CUDA("cuLaunchKernel", driver.InvalidValue).Because(format, args...)
		e.Detail = "kernel " + f.name + ": " + e.Detail
		return e
	}
	g, b := l.Grid, l.Block
	threads := uint64(b[0]) * uint64(b[1]) * uint64(b[2])
	need := f.entry.ParamBytes()
	switch {
	case g[0] == 0 || g[1] == 0 || g[2] == 0 || threads == 0:
		return wrong("grid %v of blocks %v is empty", g, b)
	case g[0] > 1<<31-1 || g[1] > 65535 || g[2] > 65535:
		return wrong("grid %v is above 2147483647 x 65535 x 65535", g)
	case threads > maxThreads || b[2] > 64:
		return wrong("block %v is above %d threads, or 64 in the last dimension", b, maxThreads)
	case int64(l.Shared) > int64(f.dynamic):
		return wrong("%d bytes of dynamic shared memory, where %d are allowed without SetMaxShared", l.Shared, f.dynamic)
	case ptx.RegistersOf(f.registers, int(threads)) > ptx.MaxRegisters:
		e := driver.CUDA("cuLaunchKernel", driver.LaunchOutOfResource).Because("kernel %s: blocks of %d threads of %d registers take %d, of %d that a multiprocessor has",
			f.name, threads, f.registers, ptx.RegistersOf(f.registers, int(threads)), ptx.MaxRegisters)
		return e
	case len(l.Params) > driver.MaxParams:
		return wrong("%d bytes of parameters, of at most %d", len(l.Params), driver.MaxParams)
	case len(l.Params) < need || len(l.Params) > (need+7)/8*8:
		return wrong("%d bytes of parameters, where it takes %d", len(l.Params), need)
	}
	return nil
}

func (s *stream) Launch(f driver.Function, l *driver.LaunchConfig) error {
	const call = "cuLaunchKernel"
	fn, ok := f.(*function)
	if !ok || fn.module.Driver != s.Driver {
		return foreign(call, f)
	}
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	switch {
	case fn.module.closed:
		return closedError(call, fn.module)
	case fn.module.primary != s.primary:
		return driver.CUDA(call, driver.InvalidHandle).Because("kernel %s of device %d on a stream of device %d", fn.name, fn.module.info.Index, s.info.Index)
	}
	if err := fn.check(l); err != nil {
		return err
	}
	if l.Dependent && !s.before {
		return driver.CUDA(call, driver.InvalidValue).Because("kernel %s is dependent, and what is before it in the stream is no launch", fn.name)
	}
	if l.Dependent && !s.info.DependentLaunch {
		return driver.CUDA(call, driver.InvalidValue).Because("kernel %s is to overlap with the launch before, which device %d, of compute capability %d.%d, cannot",
			fn.name, s.info.Index, s.info.Capability[0], s.info.Capability[1])
	}
	launch := ptx.Launch{
		Grid: ints(l.Grid), Block: ints(l.Block), Shared: int(l.Shared), MaxShared: s.info.SharedMax, Registers: fn.registers, Dependent: l.Dependent,
		Capability: s.info.Capability, Params: slices.Clone(l.Params[:fn.entry.ParamBytes()]),
	}
	t := &task{name: call + " of " + fn.name, cost: 5 * time.Microsecond, work: func() error { return fn.run(launch) }}
	t.about.Done = Done{For: l.For, Name: fn.name, Kernel: true, Grid: launch.Grid, Block: launch.Block, Shared: fn.entry.SharedBytes() + launch.Shared, Registers: fn.registers, Dependent: l.Dependent}
	s.put(t)
	s.launched = true
	return nil
}

func ints(v [3]uint32) [3]int { return [3]int{int(v[0]), int(v[1]), int(v[2])} }

// run interprets the kernel.
func (f *function) run(l ptx.Launch) error {
	m := f.module
	m.counts.kernels++
	if m.counts.kernels == m.o.LoseDevice {
		return driver.CUDA("cuLaunchKernel", driver.DeviceUnavailable).Because("device %d was lost, as asked, at kernel %s", m.info.Index, f.name)
	}
	if m.closed {
		return errors.New("the module was closed before the kernel ran")
	}
	if err := f.reaches(l.Params); err != nil {
		return err
	}
	l.Peers = m.signals.begin(m.primary)
	l.Seed = m.random.Uint64() | 1 // blocks in any order
	run := func(l ptx.Launch) error {
		err := f.entry.Run(context.Background(), m.mem, l)
		var fault *ptx.Fault
		if errors.As(err, &fault) && fault.Kind == ptx.Waits {
			m.counts.kernels-- // it has not run
			return errWaits
		}
		return err
	}
	switch {
	case m.order != nil:
		l.Meter = &ptx.Meter{Bytes: true}
		err := run(l)
		m.order.last = accessed{l.Meter.Loaded, l.Meter.Stored}
		return err
	case m.o.Meter != nil:
		return f.metered(l, run)
	}
	return run(l)
}

// reaches finds parameters that are addresses of memory that the device may not
// use; the interpreter has one memory for all devices.
func (f *function) reaches(params []byte) error {
	for i := 0; i+8 <= len(params); i += 8 {
		at := driver.Ptr(binary.LittleEndian.Uint64(params[i:]))
		if b := f.module.blocks.find(at); b != nil && b.p != f.module.primary && !f.module.peers[b.p] {
			return fmt.Errorf("kernel %s: the parameter at byte %d is in the memory of device %d, to which device %d has no peer access",
				f.name, i, b.p.info.Index, f.module.info.Index)
		}
	}
	return nil
}
