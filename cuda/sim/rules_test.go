package sim

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
	"github.com/krait-ml/krait/cuda/ptx"
)

// contains checks that an error is of a kind and says something.
func contains(t testing.TB, err, kind error, words string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v\nwant a %v that says %q", err, kind, words)
	}
}

// TestLazy: nothing runs before it must; pinned memory is used when it does.
func TestLazy(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s := v.NewStream()
	x := v.Words(1)
	in, out := v.Pinned(1), v.Pinned(1)
	copy(in, drivertest.Words(1))
	v.Must(s.CopyIn(x, in))
	v.Must(s.CopyOut(out, x))
	copy(in, drivertest.Words(2)) // too early
	v.Equal(out, 0)
	v.Must(s.Synchronize())
	v.Equal(out, 2)
}

// TestThreads: a context is bound to a thread.
func TestThreads(t *testing.T) {
	d := New(Options{Devices: 2})
	v := drivertest.Open(t, d, 0)
	s := v.NewStream()
	other := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		other <- s.Synchronize()
	}()
	if runtime.GOOS == "linux" {
		contains(t, <-other, nil, "no context is bound to this thread")
	}
	c, err := d.Open(1)
	v.Must(err)
	defer c.Close()
	v.Must(c.Bind())
	contains(t, s.Synchronize(), nil, "the context of device 1 is bound to this thread")
	v.Must(v.Bind())
	v.Must(s.Synchronize())
}

// TestDevices: memory of another device is out of reach without peer access.
func TestDevices(t *testing.T) {
	d := New(Options{Devices: 2})
	v := drivertest.Open(t, d, 0)
	s, here := v.NewStream(), v.Words(4)
	c, err := d.Open(1)
	v.Must(err)
	defer c.Close()
	v.Must(c.Bind())
	there, err := c.Alloc(16)
	v.Must(err)
	e, err := c.Event(false)
	v.Must(err)
	v.Must(v.Bind())
	contains(t, s.Fill(there, 0, 4), nil, "memory of device 1, to which device 0 has no peer access")
	contains(t, s.Copy(here, there, 4), nil, "no peer access")
	contains(t, s.CopyPeer(here, v.Context, here, c, 4), nil, "is memory of device 0, not 1")
	contains(t, s.Record(e), nil, "an event of device 1 cannot be recorded on device 0")
	contains(t, v.Release(there), nil, "not what Alloc gave on device 0")
	contains(t, s.Fill(here+8, 0, 9), nil, "9 bytes")
	contains(t, s.Fill(0, 0, 1), nil, "no address of device memory")
	v.Must(s.Wait(e)) // was never recorded
	v.Must(v.EnablePeer(c))
	v.Must(s.Fill(there, 0, 16))
	v.Must(s.Copy(here, there, 16))
	v.Must(v.Add(s, here, there, 1, 4))
	v.Want(s, here, 1, 1, 1, 1)

	v = drivertest.Open(t, d, 1)
	s = v.NewStream()
	v.Must(v.Store(s, here, 1, 1)) // no access in this direction
	contains(t, s.Synchronize(), driver.ErrKernelFault, "the parameter at byte 0 is in the memory of device 0")
}

// TestFault: a fault loses all devices for the process, and what is left can be closed.
func TestFault(t *testing.T) {
	d := New(Options{Devices: 2})
	v := drivertest.Open(t, d, 0)
	s := v.NewStream()
	x, host := v.Words(4), v.Pinned(1)
	wild, l := v.Kernel("wild"), &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 8)}
	v.Must(s.Launch(wild, l))
	v.Must(s.Fill(x, 0, 16)) // not known yet
	err := s.Synchronize()
	contains(t, err, driver.ErrKernelFault, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
	contains(t, err, nil, "st.global.u32")
	var fault *ptx.Fault
	if !errors.As(err, &fault) || fault.Kernel != "wild" || !strings.Contains(driver.Explain(err), "Restart the process") {
		t.Errorf("fault %+v", fault)
	}
	_, err1 := v.Alloc(4)
	_, err2 := s.Query()
	for _, err := range []error{err1, err2, s.Launch(wild, l), v.Synchronize(), s.Record(nil), v.Release(x), v.ReleaseHost(host), s.Close()} {
		contains(t, err, driver.ErrKernelFault, "wild")
	}
	_, err = d.Open(1)
	contains(t, err, driver.ErrKernelFault, "wild")
	v.Close()
	_, err = d.Open(0)
	contains(t, err, driver.ErrKernelFault, "cuDevicePrimaryCtxRetain: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
}

// TestFaultElsewhere: a fault ends the work of the other devices as well.
func TestFaultElsewhere(t *testing.T) {
	d := New(Options{Devices: 2})
	v := drivertest.Open(t, d, 0)
	there, err := d.Open(1)
	v.Must(err)
	defer there.Close()
	v.Must(v.Wild(v.NewStream()))
	contains(t, v.Synchronize(), driver.ErrKernelFault, "wild")
	v.Must(there.Bind())
	_, err = there.Alloc(4)
	contains(t, err, driver.ErrKernelFault, "wild")
}

// TestUnwritten: memory that was never written is not read.
func TestUnwritten(t *testing.T) {
	for name, do := range map[string]func(v *drivertest.Device, s driver.Stream, x driver.Ptr) error{
		"kernel": func(v *drivertest.Device, s driver.Stream, x driver.Ptr) error { return v.Add(s, x, x, 1, 1) },
		"copy":   func(v *drivertest.Device, s driver.Stream, x driver.Ptr) error { return s.CopyOut(v.Pinned(1), x) },
		"product": func(v *drivertest.Device, s driver.Stream, x driver.Ptr) error {
			h, err := v.GEMM()
			v.Must(err)
			v.Must(h.SetStream(s))
			return h.Gemm(&driver.GemmCall{M: 1, N: 1, K: 1, A: x, B: x, C: x, LDA: 1, LDB: 1, LDC: 1})
		},
		"released": func(v *drivertest.Device, s driver.Stream, x driver.Ptr) error {
			y, err := v.Alloc(4)
			v.Must(err)
			v.Must(v.Store(s, y, 1, 1))
			return v.Release(y)
		},
		"released pinned": func(v *drivertest.Device, s driver.Stream, x driver.Ptr) error {
			b, err := v.AllocHost(4)
			v.Must(err)
			v.Must(s.CopyIn(x, b))
			return v.ReleaseHost(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := drivertest.Open(t, New(Options{}), 0)
			s := v.NewStream()
			v.Must(do(v, s, v.Words(1)))
			contains(t, s.Synchronize(), driver.ErrKernelFault, "")
		})
	}
}

// TestInjected: the errors that tests of others ask for.
func TestInjected(t *testing.T) {
	d := New(Options{Devices: 2, FailAlloc: 2, LoseDevice: 3, NoBLAS: true, NoNCCL: true, Memory: 1 << 20})
	v := drivertest.Open(t, d, 0)
	s, x := v.NewStream(), v.Words(1)
	_, err := v.Alloc(4)
	contains(t, err, driver.ErrOutOfMemory, "4 bytes asked, 1.0 MB of 1.0 MB free on device 0")
	_, err = v.Alloc(1 << 20)
	contains(t, err, driver.ErrOutOfMemory, "1.0 MB asked")
	v.Words(1)
	_, err = v.GEMM()
	contains(t, err, driver.ErrMissingLibrary, "cuBLAS")
	_, err = d.UniqueID()
	contains(t, err, driver.ErrMissingLibrary, "NCCL")
	if list := d.Versions(); list[1].Missing == nil || list[2].Missing == nil {
		t.Errorf("versions %+v", list)
	}
	for range 3 {
		v.Must(v.Store(s, x, 1, 1))
	}
	contains(t, v.Synchronize(), driver.ErrDeviceLost, "device 0 was lost, as asked, at kernel store")
}

// TestLeaks: what is not closed is told, with the place.
func TestLeaks(t *testing.T) {
	d := New(Options{})
	v := drivertest.Open(t, d, 0)
	s, err := v.Stream()
	v.Must(err)
	v.Must(s.BeginCapture())
	_, err = s.EndCapture()
	v.Must(err)
	v.Event(false)
	v.Alloc(5)
	v.AllocHost(6)
	v.GEMM()
	want := []string{"context", "module kernels.ptx", "stream 0", "graph of 0 nodes", "event", "allocation of 5 bytes", "pinned memory of 6 bytes", "GEMM handle"}
	check := func(want []string) {
		t.Helper()
		for i, leak := range d.Leaks() {
			if i >= len(want) || !strings.HasPrefix(leak, "device 0: "+want[i]+" made at ") || !strings.Contains(leak, ".go:") {
				t.Errorf("leak %d: %s", i, leak)
			}
		}
		if n := len(d.Leaks()); n != len(want) {
			t.Errorf("%d leaks, want %d", n, len(want))
		}
	}
	check(want)
	v.Close()
	check(want[1:])
	if !slices.ContainsFunc(d.Leaks(), func(leak string) bool { return strings.Contains(leak, "rules_test.go:") }) {
		t.Errorf("leaks without this file: %q", d.Leaks())
	}
}

// TestShared: all that open a device share its memory, and the last one frees it.
func TestShared(t *testing.T) {
	d := New(Options{})
	v, w := drivertest.Open(t, d, 0), drivertest.Open(t, d, 0)
	s, x := v.NewStream(), w.Words(1)
	v.Must(v.Store(s, x, 3, 1))
	v.Want(s, x, 3)
	v.Must(w.Close())
	v.Want(s, x, 3)
	contains(t, w.Close(), nil, "the context is closed")
	contains(t, w.Bind(), nil, "the context is closed")
}

// TestCaptureRules: what a capture does not allow fails, and breaks it.
func TestCaptureRules(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(v *drivertest.Device, s driver.Stream) error
		code int
	}{
		"alloc":       {func(v *drivertest.Device, s driver.Stream) error { _, err := v.Alloc(4); return err }, driver.CaptureUnsupported},
		"pinned":      {func(v *drivertest.Device, s driver.Stream) error { _, err := v.AllocHost(4); return err }, driver.CaptureUnsupported},
		"synchronize": {func(v *drivertest.Device, s driver.Stream) error { return s.Synchronize() }, driver.CaptureUnsupported},
		"query":       {func(v *drivertest.Device, s driver.Stream) error { _, err := s.Query(); return err }, driver.CaptureUnsupported},
		"all":         {func(v *drivertest.Device, s driver.Stream) error { return v.Synchronize() }, driver.CaptureUnsupported},
		"module": {func(v *drivertest.Device, s driver.Stream) error {
			_, err := v.Module(drivertest.Kernels, "m")
			return err
		}, driver.CaptureUnsupported},
		"event": {func(v *drivertest.Device, s driver.Stream) error {
			e := v.NewEvent(false)
			v.Must(s.Record(e))
			return e.Synchronize()
		}, driver.CapturedEvent},
		"another stream": {func(v *drivertest.Device, s driver.Stream) error { return v.NewStream().Synchronize() }, driver.CaptureUnsupported},
		"another event":  {func(v *drivertest.Device, s driver.Stream) error { return v.NewEvent(false).Synchronize() }, driver.CaptureUnsupported},
		"outside": {func(v *drivertest.Device, s driver.Stream) error {
			e, other := v.NewEvent(false), v.NewStream()
			v.Must(other.Record(e)) // that it is reached does not help
			return s.Wait(e)
		}, driver.CaptureIsolation},
		"merge": {func(v *drivertest.Device, s driver.Stream) error {
			e := v.NewEvent(false)
			v.Must(s.Record(e))
			done := make(chan error)
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				v.Bind()
				other, _ := v.Stream()
				other.BeginCapture()
				err := other.Wait(e)
				other.EndCapture()
				other.Close()
				done <- err
			}()
			return <-done
		}, driver.CaptureMerge},
	} {
		t.Run(name, func(t *testing.T) {
			v := drivertest.Open(t, New(Options{}), 0)
			s := v.NewStream()
			v.Must(s.BeginCapture())
			v.Refused(c.do(v, s), c.code)
			_, err := s.EndCapture()
			v.Refused(err, driver.CaptureInvalidated)
			v.Must(s.Synchronize())
		})
	}
}

// TestCaptureFrees: a thread that captures gives nothing back that the device would have to be
// waited for, and may do so afterwards.
func TestCaptureFrees(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s := v.NewStream()
	m, err := v.Module(drivertest.Kernels, "m")
	v.Must(err)
	h, err := v.GEMM()
	v.Must(err)
	at, err := v.Alloc(4)
	v.Must(err)
	host, err := v.AllocHost(4)
	v.Must(err)
	for name, free := range map[string]func() error{
		"module": m.Close, "handle": h.Close, "memory": func() error { return v.Release(at) }, "pinned memory": func() error { return v.ReleaseHost(host) },
	} {
		v.Must(s.BeginCapture())
		v.Refused(free(), driver.CaptureUnsupported)
		if _, err := s.EndCapture(); err == nil {
			t.Errorf("%s: the capture goes on", name)
		}
		v.Must(free())
	}
}

// TestStaticShared: a kernel with more static shared memory than the assembler takes is no module,
// and what it has counts beside the dynamic one.
func TestStaticShared(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s := v.NewStream()
	static := func(bytes int) (driver.Module, error) {
		text := strings.Replace(string(drivertest.Kernels), ".visible .entry wild", fmt.Sprintf(".shared .align 4 .b8 room[%d];\n.visible .entry wild", bytes), 1)
		text = strings.Replace(text, "ld.param.u64 \t%rd1, [wild_param_0];", "ld.param.u64 \t%rd1, [wild_param_0];\n\tst.shared.u32 [room], 1;", 1)
		return v.Module([]byte(text), "static.ptx")
	}
	_, err := static(48<<10 + 4)
	contains(t, err, nil, "49156 bytes of static shared memory")
	m, err := static(40 << 10)
	v.Must(err)
	defer m.Close()
	f, err := m.Function("wild")
	v.Must(err)
	l := &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Shared: 8<<10 + 4, Params: drivertest.Params(v.Words(1))}
	contains(t, s.Launch(f, l), nil, "8196 bytes of dynamic shared memory, where 8192 are allowed")
	v.Must(f.SetMaxShared(8<<10 + 4))
	v.Must(s.Launch(f, l))
	contains(t, f.SetMaxShared(123<<10+4), nil, "besides 40960")
}

// TestTarget: a device compiles no PTX for a later one.
func TestTarget(t *testing.T) {
	text := []byte(strings.Replace(string(drivertest.Kernels), ".target sm_70", ".target sm_90", 1))
	_, err := drivertest.Open(t, New(Options{Capability: [2]int{8, 9}}), 0).Module(text, "later.ptx")
	contains(t, err, nil, "CUDA_ERROR_INVALID_PTX (218): the PTX does not compile; later.ptx is for sm_90, and device 0 has compute capability 8.9")
	v := drivertest.Open(t, New(Options{Capability: [2]int{9, 0}}), 0)
	m, err := v.Module(text, "later.ptx")
	v.Must(err)
	v.Must(m.Close())
}

// TestOverlap: a copy within memory is refused where it would read what it writes.
func TestOverlap(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s, x := v.NewStream(), v.Words(4)
	v.Must(s.Fill(x, 0, 16))
	v.Must(s.Copy(x+8, x, 8))
	contains(t, s.Copy(x+4, x, 8), nil, "overlap")
	contains(t, s.Copy(x, x+4, 8), nil, "overlap")
}

// TestAlignment: cuBLAS takes no workspace and no matrix that is not aligned.
func TestAlignment(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s, x := v.NewStream(), v.Words(256)
	h, err := v.GEMM()
	v.Must(err)
	defer h.Close()
	v.Must(h.SetStream(s))
	v.Must(h.SetWorkspace(x+256, 64))
	contains(t, h.SetWorkspace(x+128, 64), nil, "CUBLAS_STATUS_INVALID_VALUE (7): a parameter is wrong; the workspace at")
	call := driver.GemmCall{M: 1, N: 1, K: 1, A: x, B: x, C: x, LDA: 1, LDB: 1, LDC: 1}
	for _, at := range []*driver.Ptr{&call.A, &call.B, &call.C} {
		*at = x + 2
		contains(t, h.Gemm(&call), nil, "is not aligned to its elements of 4 bytes")
		*at = x
	}
}

// TestCaptureEnds: EndCapture is for the stream and the thread that began, and
// events of a capture are of no use after it.
func TestCaptureEnds(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s, other := v.NewStream(), v.NewStream()
	e := v.NewEvent(false)
	_, err := s.EndCapture()
	v.Refused(err, driver.IllegalState)
	v.Must(s.BeginCapture())
	v.Refused(s.BeginCapture(), driver.IllegalState)
	v.Must(s.Record(e))
	v.Must(other.Wait(e))
	_, err = other.EndCapture()
	v.Refused(err, driver.CaptureUnmatched)
	_, err = s.EndCapture()
	v.Refused(err, driver.CaptureInvalidated)
	v.Refused(other.Wait(e), driver.CapturedEvent)
	v.Refused(e.Synchronize(), driver.CapturedEvent)
	v.Must(other.Record(e))
	v.Must(e.Synchronize())
}

// TestGraphMissingWait: a graph that lacks a wait is found out, too.
func TestGraphMissingWait(t *testing.T) {
	found := false
	for seed := range uint64(20) {
		v := drivertest.Open(t, New(Options{Seed: seed}), 0)
		s1, s2 := v.NewStream(), v.NewStream()
		x, y := v.Words(1), v.Words(1)
		forked, joined := v.NewEvent(false), v.NewEvent(false)
		v.Must(s1.BeginCapture())
		v.Must(s1.Record(forked))
		v.Must(s2.Wait(forked))
		v.Must(v.Store(s1, x, 1, 1))
		v.Must(v.Add(s2, y, x, 1, 1)) // should wait for it
		v.Must(s2.Record(joined))
		v.Must(s1.Wait(joined))
		g, err := s1.EndCapture()
		v.Must(err)
		v.Must(g.Launch(s1))
		found = found || s1.Synchronize() != nil
	}
	if !found {
		t.Error("20 seeds did not show that a wait is missing")
	}
}

// TestGraphAgain: launches of a graph on two streams do not mix.
func TestGraphAgain(t *testing.T) {
	for seed := range uint64(10) {
		v := drivertest.Open(t, New(Options{Seed: seed}), 0)
		s1, s2 := v.NewStream(), v.NewStream()
		x, y := v.Words(1), v.Words(1)
		v.Must(s1.Fill(x, 0, 4))
		v.Must(s1.Synchronize())
		v.Must(s1.BeginCapture())
		v.Must(v.Add(s1, y, x, 1, 1))
		v.Must(s1.Copy(x, y, 4))
		g, err := s1.EndCapture()
		v.Must(err)
		for range 3 {
			v.Must(g.Launch(s1))
			v.Must(g.Launch(s2))
		}
		v.Must(v.Synchronize())
		v.Want(s1, x, 6)
	}
}

// TestLaunchRules: what a device does not take is refused.
func TestLaunchRules(t *testing.T) {
	v := drivertest.Open(t, New(Options{Capability: [2]int{8, 6}}), 0)
	s := v.NewStream()
	f := v.Kernel("wild")
	one := [3]uint32{1, 1, 1}
	for _, c := range []struct {
		l     driver.LaunchConfig
		words string
	}{
		{driver.LaunchConfig{Block: one, Params: make([]byte, 8)}, "is empty"},
		{driver.LaunchConfig{Grid: [3]uint32{1, 65536, 1}, Block: one, Params: make([]byte, 8)}, "65535"},
		{driver.LaunchConfig{Grid: one, Block: [3]uint32{1025, 1, 1}, Params: make([]byte, 8)}, "1024 threads"},
		{driver.LaunchConfig{Grid: one, Block: one, Shared: 49153, Params: make([]byte, 8)}, "without SetMaxShared"},
		{driver.LaunchConfig{Grid: one, Block: one, Params: make([]byte, 4)}, "4 bytes of parameters, where it takes 8"},
		{driver.LaunchConfig{Grid: one, Block: one, Params: make([]byte, 5000)}, "of at most 4096"},
		{driver.LaunchConfig{Grid: one, Block: one, Params: make([]byte, 8), Dependent: true}, "compute capability 8.6, cannot"},
	} {
		if c.l.Dependent {
			v.Must(v.Store(s, v.Words(1), 1, 1))
		}
		contains(t, s.Launch(f, &c.l), nil, c.words)
	}
	e := v.NewEvent(false)
	for _, put := range []func() error{func() error { return nil }, func() error { return s.Record(e) }, func() error { return s.Wait(e) }, s.Synchronize} {
		v.Must(put())
		contains(t, s.Launch(f, &driver.LaunchConfig{Grid: one, Block: one, Params: make([]byte, 8), Dependent: true}), nil, "is no launch")
	}
	v.Must(f.SetMaxShared(99 << 10))
	v.Must(s.Launch(f, &driver.LaunchConfig{Grid: one, Block: one, Shared: 99 << 10, Params: drivertest.Params(v.Words(1))}))
	contains(t, f.SetMaxShared(100<<10), nil, "at most 101376")
	v.Must(s.Synchronize())
}

// TestWorkspace: products on two streams that share a workspace are found out, be it
// lent or the handle's own; those with one each, or with an order, are not. Captured
// work needs one that was lent.
func TestWorkspace(t *testing.T) {
	for _, c := range []struct {
		name          string
		one, lent     bool // handle; workspace
		ordered, same bool // by an event; one workspace for both handles
		fails         bool
	}{
		{name: "a handle", one: true, fails: true},
		{name: "a handle and a workspace", one: true, lent: true, fails: true},
		{name: "two handles and a workspace", lent: true, same: true, fails: true},
		{name: "in order", one: true, lent: true, ordered: true},
		{name: "two workspaces", lent: true},
		{name: "two handles"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := 0
			for seed := range uint64(60) {
				v := drivertest.Open(t, New(Options{Seed: seed}), 0)
				streams := [2]driver.Stream{v.NewStream(), v.NewStream()}
				x, shared := v.Words(8), v.Words(8)
				v.Must(streams[0].Fill(x, 0, 32))
				v.Must(v.Synchronize())
				var h [2]driver.GEMM
				var err error
				for i := range h {
					if h[i] = h[0]; i == 0 || !c.one {
						h[i], err = v.GEMM()
						v.Must(err)
						defer h[i].Close()
					}
					work := shared
					if !c.same && i > 0 {
						work = v.Words(8)
					}
					if c.lent && (i == 0 || !c.one) {
						v.Must(h[i].SetWorkspace(work, 32))
					}
				}
				for n := range 4 {
					i := n % 2
					v.Must(h[i].SetStream(streams[i]))
					v.Must(h[i].Gemm(&driver.GemmCall{M: 1, N: 1, K: 1, A: x, B: x, C: x + driver.Ptr(4+4*i), LDA: 1, LDB: 1, LDC: 1}))
					if e := v.NewEvent(false); c.ordered {
						v.Must(streams[i].Record(e))
						v.Must(streams[1-i].Wait(e))
					}
				}
				if err := v.Synchronize(); err != nil {
					found++
					contains(t, err, nil, "workspace was overwritten")
				}
			}
			if (found > 0) != c.fails {
				t.Errorf("%d of 60 seeds found it", found)
			}
		})
	}
	v := drivertest.Open(t, New(Options{}), 0)
	s, x := v.NewStream(), v.Words(1)
	h, err := v.GEMM()
	v.Must(err)
	v.Must(h.SetStream(s))
	v.Must(s.BeginCapture())
	contains(t, h.Gemm(&driver.GemmCall{M: 1, N: 1, K: 1, A: x, B: x, C: x, LDA: 1, LDB: 1, LDC: 1}), nil, "no workspace was lent")
}
