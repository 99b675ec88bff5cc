//go:build linux && (amd64 || arm64)

package nvidia

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
)

// contains checks that an error is of a kind and says something.
func contains(t *testing.T, err, kind error, words string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(driver.Explain(err), words) {
		t.Errorf("error %v\nwant a %v that says %q", err, kind, words)
	}
}

// TestNoDriver: each way in which the driver can be missing.
func TestNoDriver(t *testing.T) {
	dir := fakeDir(t)
	_, err := load(search{})
	contains(t, err, driver.ErrNoDriver, "open libcuda.so.1: there is no NVIDIA driver: libcuda.so.1 was not found")
	contains(t, err, driver.ErrNoDriver, "Install NVIDIA's driver")
	_, err = load(search{first: []string{dir + "/none"}})
	contains(t, err, driver.ErrNoDriver, "libcuda.so.1 lacks cuInit")
	_, err = load(search{first: []string{dir + "/old"}})
	contains(t, err, driver.ErrNoDriver, "of CUDA 12.4, lacks cuGraphLaunch")

	f := openFake(t, "libcuda.so.1")
	f.number("version", 11080)
	_, err = load(search{first: []string{dir}})
	contains(t, err, driver.ErrNoDriver, "the driver is too old: it is for CUDA 11.8, and 12.0 is needed")
	for code, words := range map[int]string{100: "CUDA_ERROR_NO_DEVICE (100): there is no device", 34: "is a stub", 803: "different versions", 999: "CUDA_ERROR_UNKNOWN"} {
		openFake(t, "libcuda.so.1").fail("cuInit", 1, code)
		_, err = load(search{first: []string{dir}})
		contains(t, err, driver.ErrNoDriver, words)
	}
}

// TestMissingLibraries: cuBLAS and NCCL are missed only when they are needed.
func TestMissingLibraries(t *testing.T) {
	m := start(t)
	m.d.search = search{first: []string{fakeDir(t) + "/none"}}
	_, err := m.c.GEMM()
	contains(t, err, driver.ErrMissingLibrary, "open cuBLAS: it cannot be loaded")
	contains(t, err, driver.ErrMissingLibrary, "pip install nvidia-cublas-cu12")
	_, err = m.d.UniqueID()
	contains(t, err, driver.ErrMissingLibrary, "open NCCL: libnccl.so.2 was not found")
	_, err = m.d.Join(t.Context(), m.c, driver.UniqueID{}, 1, 0)
	contains(t, err, driver.ErrMissingLibrary, "One rank needs none")
	for _, v := range m.d.Versions()[1:] {
		if v.Version != "" || !errors.Is(v.Missing, driver.ErrMissingLibrary) {
			t.Errorf("version %+v", v)
		}
	}

	m = start(t)
	openFake(t, "libnccl.so.2").number("version", 21003)
	_, err = m.d.UniqueID()
	contains(t, err, driver.ErrMissingLibrary, "is NCCL 2.10.3, which is too old")
	m.d.version = 13000
	if _, err = m.c.GEMM(); err != nil {
		t.Errorf("cuBLAS 12 on a driver for CUDA 13: %v", err)
	}
}

// TestFailures: what calls return.
func TestFailures(t *testing.T) {
	m := start(t)
	blas, nccl := openFake(t, "libcublas.so.12"), openFake(t, "libnccl.so.2")
	mod := must(m.c.Module([]byte("PTX"), "m"))
	f := must(mod.Function("scan"))
	h := must(m.c.GEMM())
	x := must(m.d.Join(t.Context(), m.c, driver.UniqueID{}, 1, 0))
	l := &driver.LaunchConfig{Grid: [3]uint32{1, 2, 3}, Block: [3]uint32{4, 5, 6}, Params: make([]byte, 9)}

	m.cuda.fail("cuMemAlloc_v2", 1, driver.OutOfMemory)
	_, err := m.c.Alloc(12_300_000_000)
	contains(t, err, driver.ErrOutOfMemory, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; 12.3 GB asked, 1.2 GB of 80.0 GB free on device 0")
	m.cuda.fail("cuMemHostAlloc", 1, driver.OutOfMemory)
	_, err = m.c.AllocHost(1 << 40)
	contains(t, err, driver.ErrOutOfMemory, "pinned host memory")
	contains(t, m.c.ReleaseHost(make([]byte, 4)), nil, "not what AllocHost gave")
	_, err = m.c.Module([]byte("BAD"), "scan.ptx")
	contains(t, err, nil, "module scan.ptx for sm_90\nptxas application ptx input, line 1; error : BAD")
	_, err = mod.Function("none")
	contains(t, err, nil, "CUDA_ERROR_NOT_FOUND (500): no such name; kernel none in module m")
	m.cuda.fail("cuFuncSetAttribute", 1, driver.InvalidValue)
	contains(t, f.SetMaxShared(1<<20), nil, "kernel scan asks 1048576 bytes of shared memory; blocks of this device have at most 1097")
	m.cuda.fail("cuLaunchKernel", 1, driver.LaunchOutOfResource)
	contains(t, m.s.Launch(f, l), nil, "kernel scan of m, grid [1 2 3], block [4 5 6], 0 bytes of shared memory, 9 of parameters")
	contains(t, m.s.Launch(f, &driver.LaunchConfig{Params: make([]byte, 5000)}), nil, "kernel scan has 5000 bytes of parameters, of at most 4096")
	m.cuda.fail("cuEventCreate", 1, 12345)
	_, err = m.c.Event(false)
	contains(t, err, nil, "cuEventCreate: CUDA_ERROR_NEW (12345): something new")
	blas.fail("cublasGemmEx", 1, 15)
	contains(t, h.Gemm(&driver.GemmCall{M: 2, N: 3, K: 4, LDA: 4, LDB: 4, LDC: 3}), nil, "cublasGemmEx: CUBLAS_STATUS_NOT_SUPPORTED (15): cuBLAS cannot do that; C[2 3] f32 = A[2 4] · B[3 4]ᵀ f32")
	nccl.fail("ncclAllReduce", 1, driver.NCCLInvalidUsage)
	contains(t, x.AllReduce(m.s, 0, 0, 5, driver.F32), nil, "ncclAllReduce: ncclInvalidUsage (5)")
	nccl.number("async", driver.NCCLRemoteError)
	contains(t, x.AsyncError(), nil, "ncclRemoteError (6): another rank failed; what NCCL says")

	m.cuda.fail("cuStreamEndCapture", 1, driver.CaptureUnjoined)
	_, err = m.s.EndCapture()
	contains(t, err, nil, "Record an event at the end of every stream")
	must(0, m.s.BeginCapture())
	contains(t, m.s.CopyIn(0, make([]byte, 4)), nil, "the host memory is not pinned")

	m.cuda.fail("cuStreamSynchronize", 1, driver.IllegalAddress)
	contains(t, m.s.Synchronize(), driver.ErrKernelFault, "CUDA_ERROR_ILLEGAL_ADDRESS (700)")
	contains(t, m.s.Launch(f, l), driver.ErrKernelFault, "cuLaunchKernel")
	_, err = m.s.Query()
	contains(t, err, driver.ErrKernelFault, "cuStreamQuery")

	m = start(t)
	m.cuda.fail("cuMemsetD8Async", 1, driver.DeviceUnavailable)
	contains(t, m.s.Fill(0x40, 0, 4), driver.ErrDeviceLost, "4 bytes at 0x40 on device 0")
	contains(t, m.c.Synchronize(), driver.ErrDeviceLost, "nvidia-smi")
}

// TestMisuse: what is closed, of another driver or not bound never reaches the
// libraries.
func TestMisuse(t *testing.T) {
	m := start(t)
	mod := must(m.c.Module([]byte("PTX"), "m"))
	f, e := must(mod.Function("scan")), must(m.c.Event(false))
	must(0, errors.Join(mod.Close(), e.Close()))
	m.cuda.calls()
	for _, err := range []error{m.s.Launch(f, &driver.LaunchConfig{}), m.s.Record(e), m.s.Wait(e), e.Synchronize(), mod.Close()} {
		contains(t, err, nil, "is closed")
	}
	contains(t, m.s.Launch(nil, nil), nil, "is not of this driver")
	contains(t, m.s.Record(nil), nil, "is not of this driver")
	contains(t, m.c.EnablePeer(nil), nil, "is not of this driver")
	_, err := m.d.Open(2)
	contains(t, err, nil, "device 2 of 2")
	m.cuda.calls()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // it was never bound
		_, err := m.c.Alloc(4)
		done <- err
	}()
	contains(t, <-done, nil, "call Bind on it first")
	must(0, errors.Join(m.s.Close(), m.c.Close()))
	m.cuda.want("cuStreamDestroy_v2 0x100", "cuDevicePrimaryCtxRelease_v2 10")
	for _, err := range []error{m.s.Fill(0, 0, 4), m.s.Synchronize(), m.s.Close(), m.c.Bind(), m.c.Close()} {
		contains(t, err, nil, "is closed")
	}
}

// TestJoinGivesUp: the wait for other ranks ends with the context, and what is
// made too late is aborted.
func TestJoinGivesUp(t *testing.T) {
	m := start(t)
	nccl := openFake(t, "libnccl.so.2")
	nccl.number("wait", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := m.d.Join(ctx, m.c, driver.UniqueID{}, 2, 1)
	contains(t, err, context.DeadlineExceeded, "rank 1 of 2 gave up waiting for the others")
	nccl.number("wait", 0)
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(nccl.calls(), "ncclCommAbort 0xcc01"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the communicator was not aborted")
		}
	}
}

// TestSearch: folders come in the order that the documentation says.
func TestSearch(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"a/lib64/libx.so.2", "b/libx.so.1", "b/libx.so.2", "site-packages/nvidia/x/lib/libx.so.1"} {
		path := filepath.Join(root, file)
		must(0, os.MkdirAll(filepath.Dir(path), 0o777))
		must(0, os.WriteFile(path, nil, 0o666))
	}
	t.Setenv("KRAIT_CUDA_PATH", root+"/b"+string(filepath.ListSeparator)+root+"/a::"+root+"/site-packages/nvidia")
	t.Setenv("VIRTUAL_ENV", "")
	t.Setenv("CONDA_PREFIX", "")
	for _, env := range []string{"LD_LIBRARY_PATH", "PYTHONPATH", "PATH", "HOME"} {
		t.Setenv(env, "")
	}
	want := root + "/b/libx.so.2 " + root + "/b/libx.so.1 " + root + "/a/lib64/libx.so.2 " + root + "/site-packages/nvidia/x/lib/libx.so.1 libx.so.2 libx.so.1"
	if got := strings.Join(usual().places([]string{"libx.so.2", "libx.so.1"}), " "); got != want {
		t.Errorf("places\n%s\nwant\n%s", got, want)
	}
}

// TestSearchPython: libraries are found where pip and conda put them, for the
// environments that are active and for the user.
func TestSearchPython(t *testing.T) {
	for env, file := range map[string]string{
		"LD_LIBRARY_PATH": "libx.so.1",
		"PYTHONPATH":      "nvidia/cublas/lib/libx.so.1",
		"VIRTUAL_ENV":     "lib/python3.12/site-packages/nvidia/nccl/lib/libx.so.1",
		"CONDA_PREFIX":    "lib/libx.so.1",
		"HOME":            ".local/lib/python3.11/site-packages/nvidia/cu13/lib/libx.so.1",
	} {
		t.Run(env, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, file)
			must(0, os.MkdirAll(filepath.Dir(path), 0o777))
			must(0, os.WriteFile(path, nil, 0o666))
			for _, other := range []string{"KRAIT_CUDA_PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "HOME"} {
				t.Setenv(other, "")
			}
			t.Setenv(env, root)
			if got := usual().places([]string{"libx.so.1"}); len(got) != 2 || got[0] != "libx.so.1" || got[1] != path {
				t.Errorf("places %q", got)
			}
			t.Setenv(env, "relative") // to a folder that anybody may have written
			if got := usual().places([]string{"libx.so.1"}); len(got) != 1 {
				t.Errorf("places %q", got)
			}
		})
	}
	all := strings.Join(usual().then, " ")
	for _, want := range []string{"/usr/local/lib/python3*/dist-packages/nvidia/*/lib", "/usr/lib/python3*/dist-packages/nvidia/*/lib", "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not looked in", want)
		}
	}
}

// TestSearchInterpreter: libraries are found beside the interpreters on PATH, also where PATH has
// only a link to the interpreter of an environment, which is a link, too.
func TestSearchInterpreter(t *testing.T) {
	root := t.TempDir()
	var want []string
	for _, prefix := range []string{"tools", "env", "system"} {
		for _, dir := range []string{"bin", "lib/python3.12/site-packages/nvidia/cu13/lib"} {
			must(0, os.MkdirAll(filepath.Join(root, prefix, dir), 0o777))
		}
		want = append(want, filepath.Join(root, prefix, "lib/python3.12/site-packages/nvidia/cu13/lib/libx.so.1"))
		must(0, os.WriteFile(want[len(want)-1], nil, 0o666))
	}
	must(0, os.WriteFile(root+"/system/bin/python3.12", nil, 0o777))
	must(0, os.Symlink("../../system/bin/python3.12", root+"/env/bin/python3"))
	must(0, os.Symlink(root+"/env/bin/python3", root+"/tools/bin/python3"))
	for _, other := range []string{"KRAIT_CUDA_PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"} {
		t.Setenv(other, "")
	}
	t.Setenv("PATH", root+"/none:"+root+"/tools/bin")
	if got := usual().places([]string{"libx.so.1"}); !slices.Equal(got[1:], want) {
		t.Errorf("places %q\nwant the loader, and %q", got, want)
	}
}
