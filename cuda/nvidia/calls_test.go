//go:build linux && (amd64 || arm64)

package nvidia

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/google/go-cmp/cmp"

	"github.com/krait-ml/krait/cuda/driver"
)

func TestDevices(t *testing.T) {
	m := start(t)
	devices, err := m.d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	info := driver.DeviceInfo{
		Index: 1, Name: "Fake 11", Capability: [2]int{9, 0}, Memory: 80000000000, SMs: 1016, ClockKHz: 1013, SharedMax: 1097, DependentLaunch: true,
		PCI: "0000:0b:00.0", Links: []driver.Link{{Device: 0, Access: true, Atomics: true}},
	}
	if len(devices) != 2 || !cmp.Equal(devices[1], info) {
		t.Errorf("devices %+v, want two, and the second %+v", devices, info)
	}
	m.d.version = 12020 // whose graphs have no edges for that
	if devices, err = m.d.Devices(); err != nil || devices[1].DependentLaunch {
		t.Errorf("launches overlap on a driver for CUDA 12.2, %v", err)
	}
	m.d.version = 12040
	v := m.d.Versions()
	if v[0].Version != "12.4" || v[1].Version != "12.4" || v[2].Version != "2.20.5" || v[0].Path != fakeDir(t)+"/libcuda.so.1" {
		t.Errorf("versions %+v", v)
	}
}

// TestCalls: each method hands the library what it should.
func TestCalls(t *testing.T) {
	m := start(t)
	c, s := m.c, m.s
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	other := must(m.d.Open(1)).(*primary)
	m.cuda.calls()

	big := must(c.Alloc(5_000_000_000))
	a := must(c.Alloc(1000))
	b := must(c.Alloc(1000))
	m.cuda.want("cuMemAlloc_v2 5000000000", "cuMemAlloc_v2 1000", "cuMemAlloc_v2 1000")
	free, total, err := c.MemInfo()
	if do(err); free != 1200000000 || total != 80000000000 {
		t.Errorf("%d of %d free", free, total)
	}
	pinned := must(c.AllocHost(64))
	copy(pinned, "pinned memory")
	do(s.CopyIn(a+8, pinned[:13]))
	do(s.CopyIn(b, []byte("pageable")))
	out := make([]byte, 13)
	do(s.CopyOut(out, a+8))
	do(s.CopyIn(a, nil))
	if string(out) != "pinned memory" {
		t.Errorf("copied %q", out)
	}
	m.cuda.want("cuMemHostAlloc 64 1", "cuMemcpyHtoDAsync_v2 0x8 13 0x100", "cuMemcpyHtoDAsync_v2 0x400 8 0x100", "cuMemcpyDtoHAsync_v2 0x8 13 0x100")
	do(s.Copy(big, b, 4_300_000_000))
	do(s.CopyPeer(big, c, b, other, 1<<33))
	do(s.Fill(a, 255, 1<<32))
	m.cuda.want("cuMemcpyDtoDAsync_v2 0x700000000000 0x400 4300000000 0x100",
		"cuMemcpyPeerAsync 0x700000000000 0xc00a 0x400 0xc00b 8589934592 0x100", "cuMemsetD8Async 0 255 4294967296 0x100")

	timing, plain := must(c.Event(true)), must(c.Event(false))
	do(s.Record(timing))
	do(s.Wait(plain))
	do(plain.Synchronize())
	if d := must(plain.Elapsed(timing)); d != 1500*time.Microsecond {
		t.Errorf("elapsed %v", d)
	}
	m.cuda.want("cuEventCreate 0", "cuEventCreate 2", "cuEventRecord 0x201 0x100", "cuStreamWaitEvent 0x100 0x202 0",
		"cuEventSynchronize 0x202", "cuEventElapsedTime 0x201 0x202")

	mod := must(c.Module([]byte("some PTX"), "some"))
	f := must(mod.Function("scan"))
	m.cuda.want("cuModuleLoadDataEx 8 bytes, 4 options 3 4 5 6, logs of 8192 and 8192", "cuModuleGetFunction 0x303 scan")
	if info := must(f.Attributes()); info != (driver.FunctionInfo{MaxThreads: 10, Shared: 11, Local: 13, Registers: 14}) {
		t.Errorf("attributes %+v", info)
	}
	m.cuda.calls()
	do(f.SetMaxShared(100_000))
	params := []byte{1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0x80}
	do(s.Launch(f, &driver.LaunchConfig{Grid: [3]uint32{70000, 2, 3}, Block: [3]uint32{256, 1, 1}, Shared: 99_000, Params: params}))
	do(s.Launch(f, &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}))
	do(s.Launch(f, &driver.LaunchConfig{Grid: [3]uint32{70001, 4, 5}, Block: [3]uint32{128, 2, 3}, Shared: 98_000, Params: params, Dependent: true}))
	do(s.Launch(f, &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Dependent: true}))
	m.cuda.want("cuFuncSetAttribute 0x404 8 100000",
		"cuLaunchKernel 0x404 grid 70000 2 3 block 256 1 1 shared 99000 stream 0x100 params null extra 0102030405060708ff80",
		"cuLaunchKernel 0x404 grid 1 1 1 block 1 1 1 shared 0 stream 0x100 params null extra null",
		"cuLaunchKernelEx 0x404 grid 70001 4 5 block 128 2 3 shared 98000 stream 0x100 params null extra 0102030405060708ff80 attributes 6 1",
		"cuLaunchKernelEx 0x404 grid 1 1 1 block 1 1 1 shared 0 stream 0x100 params null extra null attributes 6 1")

	do(s.BeginCapture())
	g, err := s.EndCapture()
	do(err)
	do(g.Launch(s))
	if g.Nodes() != 7 {
		t.Errorf("%d nodes", g.Nodes())
	}
	m.cuda.want("cuStreamBeginCapture_v2 0x100 1", "cuStreamEndCapture 0x100", "cuGraphGetNodes 0x605 null", "cuGraphInstantiateWithFlags 0x605 0",
		"cuGraphDestroy 0x605", "cuGraphLaunch 0x706 0x100")

	do(c.EnablePeer(other))
	if done := must(s.Query()); !done {
		t.Error("not done")
	}
	m.cuda.fail("cuStreamQuery", 1, driver.NotReady)
	if done := must(s.Query()); done {
		t.Error("done")
	}
	do(s.Synchronize())
	do(c.Synchronize())
	m.cuda.want("cuCtxEnablePeerAccess 0xc00b 0", "cuStreamQuery 0x100", "cuStreamQuery 0x100", "cuStreamSynchronize 0x100", "cuCtxSynchronize")

	do(g.Close())
	do(mod.Close())
	do(timing.Close())
	do(s.Close())
	do(c.Release(a))
	do(c.ReleaseHost(pinned))
	do(c.Close())
	m.cuda.want("cuGraphExecDestroy 0x706", "cuModuleUnload 0x303", "cuEventDestroy_v2 0x201", "cuStreamDestroy_v2 0x100", "cuMemFree_v2 0",
		"cuMemFreeHost", "cuDevicePrimaryCtxRelease_v2 10")
}

func TestGEMM(t *testing.T) {
	m := start(t)
	blas := openFake(t, "libcublas.so.12")
	g := must(m.c.GEMM())
	for _, err := range []error{g.SetWorkspace(0x5000, 1<<33), g.SetStream(m.s)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	blas.want("cublasCreate_v2", "cublasSetMathMode 0xb1a5 16", "cublasSetWorkspace_v2 0xb1a5 0x5000 8589934592",
		"cublasSetStream_v2 0xb1a5 0x100", "cublasSetWorkspace_v2 0xb1a5 0x5000 8589934592")
	for _, c := range []struct {
		in, out    driver.Format
		accumulate bool
		want       string
	}{
		{driver.F32, driver.F32, false, "alpha 1 A 0xb000 0 25 B 0xa000 0 24 beta 0 C 0xc000 0 26 compute 68 algo -1"},
		{driver.TF32, driver.F32, true, "alpha 1 A 0xb000 0 25 B 0xa000 0 24 beta 1 C 0xc000 0 26 compute 77 algo -1"},
		{driver.BF16, driver.BF16, false, "alpha 1 A 0xb000 14 25 B 0xa000 14 24 beta 0 C 0xc000 14 26 compute 68 algo -1"},
		{driver.F16, driver.F32, true, "alpha 1 A 0xb000 2 25 B 0xa000 2 24 beta 1 C 0xc000 0 26 compute 68 algo -1"},
	} {
		err := g.Gemm(&driver.GemmCall{M: 3, N: 5, K: 7, A: 0xa000, B: 0xb000, C: 0xc000, LDA: 24, LDB: 25, LDC: 26, In: c.in, Out: c.out, Accumulate: c.accumulate})
		if err != nil {
			t.Fatal(err)
		}
		blas.want("cublasGemmEx 0xb1a5 op 1 0 sizes 5 3 7 " + c.want)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	blas.want("cublasDestroy_v2 0xb1a5")
}

func TestCollectives(t *testing.T) {
	m := start(t)
	nccl := openFake(t, "libnccl.so.2")
	id := must(m.d.UniqueID())
	sum := 0
	for i, b := range id {
		sum += (i + 1) * int(int8(b))
	}
	x := must(m.d.Join(t.Context(), m.c, id, 8, 3))
	nccl.want("ncclGetUniqueId", fmt.Sprintf("ncclCommInitRank 3 of 8, id 1..128 sum %d", sum))
	for _, err := range []error{
		x.GroupStart(),
		x.AllReduce(m.s, 0x10, 0x20, 1<<33, driver.F32),
		x.ReduceScatter(m.s, 0x10, 0x20, 5, driver.BF16),
		x.AllGather(m.s, 0x10, 0x20, 5, driver.F16),
		x.Broadcast(m.s, 0x10, 0x20, 5, driver.F32, 2),
		x.Send(m.s, 0x10, 6, driver.F32, 4),
		x.Recv(m.s, 0x20, 6, driver.F32, 5),
		x.GroupEnd(), x.AsyncError(), x.Abort(), x.Abort(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	nccl.want("ncclGroupStart", "ncclAllReduce 0x10 0x20 8589934592 7 0 0xcc03 0x100", "ncclReduceScatter 0x10 0x20 5 9 0 0xcc03 0x100",
		"ncclAllGather 0x10 0x20 5 6 0xcc03 0x100", "ncclBroadcast 0x10 0x20 5 7 root 2 0xcc03 0x100", "ncclSend 0x10 6 7 to 4 0xcc03 0x100",
		"ncclRecv 0x20 6 7 from 5 0xcc03 0x100", "ncclGroupEnd", "ncclCommGetAsyncError 0xcc03", "ncclCommAbort 0xcc03")
}

// TestAllocations: what a step of decoding calls allocates nothing.
func TestAllocations(t *testing.T) {
	m := start(t)
	nccl, blas := openFake(t, "libnccl.so.2"), openFake(t, "libcublas.so.12")
	for _, f := range []*fake{m.cuda, nccl, blas} {
		f.number("quiet", 1)
	}
	var s driver.Stream = m.s
	e := must(m.c.Event(false))
	f := must(must(m.c.Module([]byte("PTX"), "m")).Function("f"))
	pinned := must(m.c.AllocHost(64))
	p := must(m.c.Alloc(64))
	if err := s.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	g := must(s.EndCapture())
	x := must(m.d.Join(t.Context(), m.c, driver.UniqueID{}, 1, 0))
	h := must(m.c.GEMM())
	l := &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 64)}
	call := &driver.GemmCall{M: 1, N: 1, K: 1, LDA: 1, LDB: 1, LDC: 1}
	for name, do := range map[string]func() error{
		"Launch":      func() error { return s.Launch(f, l) },
		"Record":      func() error { return s.Record(e) },
		"Wait":        func() error { return s.Wait(e) },
		"CopyIn":      func() error { return s.CopyIn(p, pinned) },
		"CopyOut":     func() error { return s.CopyOut(pinned, p) },
		"Copy":        func() error { return s.Copy(p, p, 64) },
		"Fill":        func() error { return s.Fill(p, 0, 64) },
		"graph":       func() error { return g.Launch(s) },
		"Synchronize": func() error { return e.Synchronize() },
		"Query":       func() error { _, err := s.Query(); return err },
		"AllReduce":   func() error { return x.AllReduce(s, p, p, 1, driver.F32) },
		"Gemm":        func() error { return h.Gemm(call) },
		"wait":        func() error { return s.Synchronize() },
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// TestPinned: a range is pinned if it lies in one block.
func TestPinned(t *testing.T) {
	var l blocks
	a, b := make([]byte, 100), make([]byte, 100)
	l.add(a)
	for _, c := range []struct {
		b    []byte
		want bool
	}{{a, true}, {a[10:20], true}, {a[99:], true}, {b, false}, {b[:1], false}, {unsafe.Slice(&a[50], 51), false}} {
		if got := l.hold(c.b); got != c.want {
			t.Errorf("%d bytes: %v", len(c.b), got)
		}
	}
	if l.remove(b) || l.remove(a[:50]) || !l.remove(a) || l.hold(a) {
		t.Error("the blocks are wrong after removal")
	}
}

// TestEagerLoading: cuInit finds eager loading in libc's environment, or what the user has chosen.
func TestEagerLoading(t *testing.T) {
	f := openFake(t, "libcuda.so.1")
	f.calls()
	handle := must(purego.Dlopen(filepath.Join(fakeDir(t), "libcuda.so.1"), purego.RTLD_NOW))
	loading := must(purego.Dlsym(handle, "fake_loading"))
	for _, c := range []struct{ set, want string }{{"", "EAGER"}, {"LAZY", "LAZY"}} {
		t.Setenv("CUDA_MODULE_LOADING", c.set)
		must(load(search{first: []string{fakeDir(t)}}))
		r, _, _ := purego.SyscallN(loading)
		if got := text(*(**byte)(unsafe.Pointer(&r))); got != c.want {
			t.Errorf("cuInit finds CUDA_MODULE_LOADING=%s where the user says %q; want %s", got, c.set, c.want)
		}
	}
}
