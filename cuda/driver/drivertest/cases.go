package drivertest

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// Run runs the cases that every driver must pass, each with a driver of its
// own. Cases that need what the driver or the machine does not have are
// skipped.
func Run(t *testing.T, open func(t *testing.T) driver.Driver) {
	for _, c := range []struct {
		name string
		run  func(v *Device)
	}{
		{"devices", devices},
		{"memory", memory},
		{"pinned", pinned},
		{"launches", launches},
		{"dependent launches", dependent},
		{"events", events},
		{"again", recordedAgain},
		{"timing", timing},
		{"query", query},
		{"graph", graph},
		{"unjoined", unjoined},
		{"isolation", isolation},
		{"pageable capture", pageableCapture},
		{"modules", modules},
		{"full", full},
		{"closed", closed},
		{"foreign", foreign},
		{"products", products},
		{"peers", peers},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(Open(t, open(t), 0)) })
	}
	t.Run("collectives", func(t *testing.T) { collectives(t, open(t)) })
}

func devices(v *Device) {
	list, err := v.Driver.Devices()
	v.Must(err)
	for i, info := range list {
		if info.Index != i || info.Memory < 1 || info.SMs < 1 || info.Capability[0] < 1 || info.SharedMax < 48<<10 || info.PCI == "" || info.Name == "" {
			v.Errorf("device %d: %+v", i, info)
		}
		for j := range list {
			if _, ok := info.LinkTo(j); ok == (i == j) {
				v.Errorf("device %d has links %+v", i, info.Links)
			}
		}
	}
	if _, err := v.Driver.Open(len(list)); err == nil {
		v.Error("a device that is not there could be opened")
	}
	if len(v.Driver.Versions()) != 3 || v.Driver.Name() == "" {
		v.Errorf("versions %+v", v.Driver.Versions())
	}
	free, total, err := v.MemInfo()
	v.Must(err)
	if free < 1 || free > total || total > v.Device().Memory+1 {
		v.Errorf("%d of %d bytes free", free, total)
	}
}

func memory(v *Device) {
	s := v.NewStream()
	a, b := v.Words(8), v.Words(8)
	v.Must(s.Fill(a, 1, 32))
	host := Words(2, 3)
	v.Must(s.CopyIn(a+8, host))
	clear(host) // it was read already
	v.Must(s.Copy(b, a, 32))
	v.Must(s.Copy(b+24, a+8, 4))
	v.Must(s.Copy(a, b, 0))
	v.Want(s, b, 0x01010101, 0x01010101, 2, 3, 0x01010101, 0x01010101, 2, 0x01010101)
}

func pinned(v *Device) {
	s := v.NewStream()
	a := v.Words(4)
	in, out := v.Pinned(4), v.Pinned(4)
	copy(in, Words(1, 2, 3, 4))
	v.Must(s.CopyIn(a, in))
	v.Must(v.Add(s, a, a, 10, 4))
	v.Must(s.CopyOut(out[:8], a))
	v.Must(s.CopyOut(out[8:], a+8))
	v.Must(s.Synchronize())
	v.Equal(out, 11, 12, 13, 14)
}

func launches(v *Device) {
	s := v.NewStream()
	const n = 100
	a, b := v.Words(n), v.Words(n)
	v.Must(v.Store(s, a, 7, n))
	l := launch(n, Params(b, a, uint32(5), uint32(n)))
	v.Must(s.Launch(v.Kernel("add"), l))
	clear(l.Params) // they were read already
	for range 10 {
		v.Must(v.Add(s, b, b, 1, n))
	}
	v.Want(s, b, Fill(22, n)...)
	info, err := v.Kernel("add").Attributes()
	v.Must(err)
	if info.MaxThreads < 32 || info.Local != 0 || info.Shared != 0 {
		v.Errorf("attributes %+v", info)
	}
	v.Must(v.Kernel("add").SetMaxShared(48 << 10))
	if err := v.Kernel("add").SetMaxShared(1 << 30); err == nil {
		v.Error("a block may have 1 GB of shared memory")
	}
	if err := s.Launch(v.Kernel("add"), &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{2048, 1, 1}, Params: make([]byte, 24)}); err == nil {
		v.Error("a block of 2048 threads was launched")
	}
}

// dependent: launches that may begin before the ones before have ended read what these wrote, one
// by one and in a graph.
func dependent(v *Device) {
	if !v.Device().DependentLaunch {
		v.Skip("launches do not overlap on this device")
	}
	text := strings.NewReplacer(".target sm_70", ".target sm_90", ".version 7.0", ".version 7.8",
		"\n{\n", "\n{\n\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n").Replace(string(Kernels))
	m, err := v.Module([]byte(text), "dependent.ptx")
	v.Must(err)
	defer m.Close()
	add, err := m.Function("add")
	v.Must(err)
	s := v.NewStream()
	const n, times = 1000, 20
	a := v.Words(n)
	l := launch(n, Params(a, a, uint32(3), uint32(n)))
	l.Dependent = true
	chain := func() {
		v.Must(v.Store(s, a, 7, n))
		for range times {
			v.Must(s.Launch(add, l))
		}
		v.Must(v.Add(s, a, a, 1, n)) // does not overlap
	}
	chain()
	v.Want(s, a, Fill(7+3*times+1, n)...)
	v.Must(s.BeginCapture())
	chain()
	g, err := s.EndCapture()
	v.Must(err)
	defer g.Close()
	v.Must(s.Fill(a, 0, 4*n))
	v.Must(g.Launch(s))
	v.Must(g.Launch(s))
	v.Want(s, a, Fill(7+3*times+1, n)...)
}

// events: a second stream reads what the first has written, and the first
// overwrites it when it is read.
func events(v *Device) {
	s1, s2 := v.NewStream(), v.NewStream()
	const n = 64
	x, y := v.Words(n), v.Words(n)
	written, read := v.NewEvent(false), v.NewEvent(false)
	v.Must(s2.Fill(y, 0, n*4))
	for i := range uint32(5) {
		v.Must(s1.Wait(read))
		v.Must(v.Store(s1, x, i, n))
		v.Must(s1.Record(written))
		v.Must(s2.Wait(written))
		v.Must(v.Add(s2, y, x, i, n))
		v.Must(s2.Record(read))
	}
	v.Want(s2, y, Fill(8, n)...)
	v.Must(read.Synchronize())
	v.Must(v.Synchronize())
}

// recordedAgain: a wait is for the record before it, not for later ones.
func recordedAgain(v *Device) {
	s1, s2 := v.NewStream(), v.NewStream()
	x, y := v.Words(1), v.Words(1)
	e, never := v.NewEvent(false), v.NewEvent(false)
	v.Must(s2.Wait(never))
	v.Must(never.Synchronize())
	v.Must(v.Store(s1, x, 1, 1))
	v.Must(s1.Record(e))
	v.Must(s2.Wait(e))
	v.Must(v.Add(s2, y, x, 1, 1))
	v.Must(s2.Record(e))
	v.Must(s1.Wait(e))
	v.Must(v.Store(s1, x, 10, 1))
	v.Must(s1.Record(e))
	v.Must(e.Synchronize())
	v.Want(s2, y, 2)
	v.Want(s1, x, 10)
}

func timing(v *Device) {
	s := v.NewStream()
	from, to, plain := v.NewEvent(true), v.NewEvent(true), v.NewEvent(false)
	x := v.Words(1 << 16)
	v.Must(s.Record(from))
	for range 10 {
		v.Must(v.Store(s, x, 1, 1<<16))
	}
	v.Must(s.Record(to))
	v.Must(s.Record(plain))
	v.Must(s.Synchronize())
	d, err := to.Elapsed(from)
	v.Must(err)
	if d <= 0 || d > time.Minute {
		v.Errorf("elapsed %v", d)
	}
	_, err = plain.Elapsed(from)
	v.Refused(err, driver.InvalidHandle)
}

func query(v *Device) {
	s := v.NewStream()
	x := v.Words(1)
	for range 5 {
		v.Must(v.Store(s, x, 3, 1))
	}
	for done := false; !done; {
		var err error
		done, err = s.Query()
		v.Must(err)
	}
	v.Want(s, x, 3)
}

// fork captures y = x + 1 in a first stream, z = y + 10 and w = y + 100 in two,
// and out = z there; join says whether the second is waited for.
func fork(v *Device, s1, s2 driver.Stream, x driver.Ptr, out []byte, join bool) (driver.Graph, error) {
	forked, joined := v.NewEvent(false), v.NewEvent(false)
	v.Must(s1.BeginCapture())
	v.Must(s1.CopyIn(x, out[4:8]))
	v.Must(v.Add(s1, x+4, x, 1, 1))
	v.Must(s1.Record(forked))
	v.Must(s2.Wait(forked))
	v.Must(v.Add(s2, x+8, x+4, 10, 1))
	v.Must(v.Add(s1, x+12, x+4, 100, 1))
	v.Must(s2.Record(joined))
	if join {
		v.Must(s1.Wait(joined))
	}
	v.Must(s1.CopyOut(out[:4], x+8))
	return s1.EndCapture()
}

func graph(v *Device) {
	s1, s2, s3 := v.NewStream(), v.NewStream(), v.NewStream()
	x, host := v.Words(4), v.Pinned(2)
	v.Must(s1.Fill(x, 0, 16))
	g, err := fork(v, s1, s2, x, host, true)
	v.Must(err)
	defer g.Close()
	if g.Nodes() != 5 {
		v.Errorf("the graph has %d nodes, want 5", g.Nodes())
	}
	v.Must(s1.Synchronize())
	for i := range uint32(3) {
		copy(host[4:], Words(i))
		v.Must(g.Launch(s3))
		v.Must(s3.Synchronize())
		v.Equal(host, i+11)
	}
	v.Must(g.Launch(s3))
	v.Must(v.Add(s3, x+12, x+12, 1, 1)) // after all of the graph
	v.Want(s3, x, 2, 3, 13, 104)
	v.Must(g.Close())
	v.Refused(g.Launch(s3), driver.InvalidHandle)
}

func unjoined(v *Device) {
	s1, s2 := v.NewStream(), v.NewStream()
	_, err := fork(v, s1, s2, v.Words(4), v.Pinned(2), false)
	v.Must(unsupported(err))
	v.Refused(err, driver.CaptureUnjoined)
	x := v.Words(1)
	v.Must(v.Store(s2, x, 5, 1)) // both streams are free again
	v.Want(s2, x, 5)
}

// unsupported is an error that means that the driver cannot do it at all.
func unsupported(err error) error {
	if errors.Is(err, driver.ErrUnsupported) {
		return err
	}
	return nil
}

func isolation(v *Device) {
	s1, s2 := v.NewStream(), v.NewStream()
	x := v.Words(1)
	before := v.NewEvent(false)
	v.Must(v.Store(s2, x, 1, 1))
	v.Must(s2.Record(before))
	v.Must(s1.BeginCapture())
	v.Must(v.Add(s1, x, x, 1, 1))
	v.Refused(s1.Wait(before), driver.CaptureIsolation)
	_, err := s1.EndCapture()
	v.Refused(err, driver.CaptureInvalidated)
}

func pageableCapture(v *Device) {
	s := v.NewStream()
	x := v.Words(1)
	for _, copy := range []func() error{
		func() error { return s.CopyIn(x, Words(1)) },
		func() error { return s.CopyOut(make([]byte, 4), x) },
	} {
		v.Must(s.BeginCapture())
		v.Refused(copy(), driver.CaptureUnsupported)
		if g, err := s.EndCapture(); err == nil {
			g.Close()
		}
	}
}

func modules(v *Device) {
	_, err := v.Module([]byte(strings.Replace(string(Kernels), "mov.u32", "BAD.u32", 1)), "broken.ptx")
	if err == nil || !strings.Contains(err.Error(), "broken.ptx") {
		v.Errorf("broken PTX: %v", err)
	}
	_, err = v.module.Function("none")
	v.Refused(err, driver.NotFound)
	if err == nil || !strings.Contains(err.Error(), "none") {
		v.Errorf("a kernel that is not there: %v", err)
	}
}

func full(v *Device) {
	_, err := v.Alloc(1 << 45)
	if !errors.Is(err, driver.ErrOutOfMemory) || !strings.Contains(err.Error(), "35184.4 GB asked") {
		v.Errorf("35 TB: %v", err)
	}
	x, err := v.Alloc(4)
	v.Must(err)
	v.Must(v.Release(x))
}

func closed(v *Device) {
	s, err := v.Stream()
	v.Must(err)
	e, err := v.Event(false)
	v.Must(err)
	other := v.NewStream()
	v.Must(s.Close())
	v.Must(e.Close())
	for _, err := range []error{s.Fill(0, 0, 4), s.Record(e), s.Synchronize(), s.Close(), e.Synchronize(), e.Close(), other.Record(e), other.Wait(e)} {
		v.Refused(err, driver.InvalidHandle)
	}
}

func foreign(v *Device) {
	s := v.NewStream()
	v.Refused(s.Record(nil), driver.InvalidHandle)
	v.Refused(s.Launch(nil, &driver.LaunchConfig{}), driver.InvalidHandle)
}

func products(v *Device) {
	s := v.NewStream()
	h, err := v.GEMM()
	v.Must(err)
	defer h.Close()
	v.Must(h.SetStream(s))
	v.Must(h.SetWorkspace(v.Words(1<<20), 4<<20))
	const m, n, k = 3, 5, 4
	a, b, c := v.Words(m*6), v.Words(n*7), v.Words(m*8)
	for i := range m * 6 {
		v.Must(s.CopyIn(a+driver.Ptr(4*i), floats(float32(i%5)-2)))
	}
	for i := range n * 7 {
		v.Must(s.CopyIn(b+driver.Ptr(4*i), floats(float32(i%7)-3)))
	}
	v.Must(s.Fill(c, 0, m*8*4))
	call := &driver.GemmCall{M: m, N: n, K: k, A: a, B: b, C: c, LDA: 6, LDB: 7, LDC: 8, In: driver.F32, Out: driver.F32}
	v.Must(h.Gemm(call))
	call.Accumulate, call.In = true, driver.TF32
	v.Must(h.Gemm(call))
	want := make([]uint32, m*8)
	for i := range m {
		for j := range n {
			sum := float32(0)
			for l := range k {
				sum += 2 * (float32((i*6+l)%5) - 2) * (float32((j*7+l)%7) - 3)
			}
			want[i*8+j] = math.Float32bits(sum + 0)
		}
	}
	v.Want(s, c, want...)
	call.Out = driver.BF16
	if err := h.Gemm(call); err == nil {
		v.Error("a product of tf32 gave bf16")
	}
}

func floats(list ...float32) (b []byte) {
	for _, x := range list {
		b = append(b, Words(math.Float32bits(x))...)
	}
	return b
}

func peers(v *Device) {
	list, err := v.Driver.Devices()
	v.Must(err)
	if len(list) < 2 {
		v.Skip("there is one device only")
	}
	s := v.NewStream()
	here := v.Words(2)
	there, err := v.Driver.Open(1)
	v.Must(err)
	defer there.Close()
	v.Must(there.Bind())
	p, err := there.Alloc(8)
	v.Must(err)
	defer func() { there.Bind(); there.Release(p); v.Bind() }()
	v.Must(v.Bind())
	v.Must(s.CopyIn(here, Words(4, 5)))
	v.Must(s.CopyPeer(p, there, here, v.Context, 8))
	v.Must(s.Fill(here, 0, 8))
	v.Must(s.CopyPeer(here, v.Context, p+4, there, 4))
	v.Want(s, here, 5, 0)
	if l, _ := list[0].LinkTo(1); l.Access {
		v.Must(v.EnablePeer(there))
		v.Must(v.EnablePeer(there))
		v.Must(v.Store(s, p, 7, 2)) // a kernel of this device writes there, and reads
		v.Must(v.Add(s, here, p, 1, 2))
		v.Want(s, here, 8, 8)
	}
}
