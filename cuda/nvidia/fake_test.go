//go:build linux && (amd64 || arm64)

package nvidia

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/krait-ml/krait/cuda/driver"
)

// fakes builds the stand-ins for NVIDIA's libraries once; see testdata.
var fakes = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "krait-cuda"); err != nil {
		return "", err
	}
	for lib, source := range map[string]string{
		"libcuda.so.1":      "testdata/fakecuda.c",
		"old/libcuda.so.1":  "-DWITHOUT_GRAPHS testdata/fakecuda.c",
		"libcublas.so.12":   "testdata/fakecublas.c",
		"libnccl.so.2":      "testdata/fakenccl.c",
		"none/libcuda.so.1": "testdata/fakecublas.c",
	} {
		if err := compile(filepath.Join(dir, lib), strings.Fields(source)...); err != nil {
			return dir, err
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, "none", "libcublas.so.12"), []byte("not a library"), 0o666)
})

// compile builds a library with whatever C compiler there is.
func compile(file string, source ...string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	for _, cc := range []string{os.Getenv("CC"), "cc", "gcc", "clang", "clang-19"} {
		path, err := exec.LookPath(cc)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, append([]string{"-shared", "-fPIC", "-o", file}, source...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %v\n%s", path, err, out)
		}
		return nil
	}
	return exec.ErrNotFound
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := fakes(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// fakeDir is the folder with the stand-ins; without a C compiler the test is
// skipped.
func fakeDir(t testing.TB) string {
	t.Helper()
	dir, err := fakes()
	if err == exec.ErrNotFound {
		t.Skip("no C compiler (cc, gcc, clang, clang-19): the stand-ins for NVIDIA's libraries cannot be built")
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fake is a handle on a stand-in.
type fake struct {
	t                       testing.TB
	log, reset, script, set uintptr
	prefix                  string
}

func openFake(t testing.TB, lib string) *fake {
	handle, err := purego.Dlopen(filepath.Join(fakeDir(t), lib), purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t}
	for name, into := range map[string]*uintptr{"fake_log": &f.log, "fake_reset": &f.reset, "fake_script": &f.script, "fake_set": &f.set} {
		if *into, err = purego.Dlsym(handle, name); err != nil {
			t.Fatal(err)
		}
	}
	purego.SyscallN(f.reset)
	return f
}

// fail lets the nth call of name, counted from now, return a code.
func (f *fake) fail(name string, nth, code int) {
	b := append([]byte(name), 0)
	purego.SyscallN(f.script, uintptr(unsafe.Pointer(&b[0])), uintptr(nth), uintptr(code))
}

func (f *fake) number(name string, value int) {
	b := append([]byte(name), 0)
	purego.SyscallN(f.set, uintptr(unsafe.Pointer(&b[0])), uintptr(value))
}

// calls is what was called since the last time.
func (f *fake) calls() string {
	r, _, _ := purego.SyscallN(f.log)
	all := text(*(**byte)(unsafe.Pointer(&r)))
	fresh := strings.TrimPrefix(all, f.prefix)
	f.prefix = all
	return fresh
}

// want compares the calls since the last time.
func (f *fake) want(lines ...string) {
	f.t.Helper()
	got, want := strings.TrimSpace(strings.ReplaceAll(f.calls(), " \n", "\n")), strings.Join(lines, "\n")
	if got != want {
		f.t.Errorf("calls:\n%s\nwant:\n%s", got, want)
	}
}

// machine is a driver on the stand-ins with device 0 bound to the test's thread.
type machine struct {
	d    *cuda
	c    *primary
	s    *stream
	cuda *fake
}

func start(t testing.TB) *machine {
	openFake(t, "libcublas.so.12")
	openFake(t, "libnccl.so.2")
	m := &machine{cuda: openFake(t, "libcuda.so.1")}
	d, err := load(search{first: []string{fakeDir(t)}})
	if err != nil {
		t.Fatal(err)
	}
	m.d = d
	runtime.LockOSThread() // ends with the test, so that no other begins on a thread that is bound
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	m.c = c.(*primary)
	if err := c.Bind(); err != nil {
		t.Fatal(err)
	}
	s, err := c.Stream()
	if err != nil {
		t.Fatal(err)
	}
	m.s = s.(*stream)
	m.cuda.calls()
	return m
}

// must is for calls that cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var _ driver.Driver = (*cuda)(nil)
