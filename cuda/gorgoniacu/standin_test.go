//go:build !gorgonia_cu

package gorgoniacu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOnStandIn builds this package with its tag, for a libcuda that answers as a
// simulated machine (testdata/libcuda.c), and runs the tests that it has then.
func TestOnStandIn(t *testing.T) {
	header := os.Getenv("KRAIT_CUDA_H")
	if header == "" {
		t.Skip("KRAIT_CUDA_H does not name a folder with CUDA 11's cuda.h: the driver for gorgonia.org/cu is not compiled")
	}
	header, err := filepath.Abs(header)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	library := filepath.Join(dir, "libcuda.so.1")
	run(t, nil, "cc", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, "testdata/libcuda.c")
	if err := os.Symlink(library, filepath.Join(dir, "libcuda.so")); err != nil {
		t.Fatal(err)
	}
	// gorgonia.org/cu names a hundred calls that nothing here leads to; they are
	// looked for when they are made.
	run(t, []string{
		"CGO_ENABLED=1", "LD_LIBRARY_PATH=" + dir, "CGO_CFLAGS=-w -I" + header,
		"CGO_LDFLAGS=-L" + dir + " -Wl,--unresolved-symbols=ignore-all -Wl,-z,lazy",
	}, "go", "test", "-tags", "gorgonia_cu", ".")
}

// run runs a command, which must succeed.
func run(t *testing.T, environment []string, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), environment...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	t.Logf("%s\n%s", name, out)
}
