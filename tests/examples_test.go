package tests

import (
	"crypto/sha256"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
)

// TestExamplesWriteNothing runs each example in a read-only copy of the files that examples read.
// Root may write there all the same, so the copy is compared with what it was.
func TestExamplesWriteNothing(t *testing.T) {
	if !goldens.All() {
		t.Skip("it links all examples: CI does, with KRAIT_TEST_ALL")
	}
	t.Chdir("..")
	examples, err := filepath.Glob("examples/*")
	for _, dir := range examples {
		if _, err := os.ReadDir(dir); err != nil { // go test runs it again where a file there changed
			t.Fatal(err)
		}
	}
	if err != nil || len(examples) < 8 {
		t.Fatalf("%d examples, %v", len(examples), err)
	}
	programs, tree := t.TempDir(), t.TempDir()
	build := func(module, out, pattern string) {
		c := exec.Command("go", "build", "-C", module, "-ldflags=-s -w", "-o", out, pattern)
		c.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly", "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	build(".", programs+string(filepath.Separator), "./examples/...")
	build("examples/ownmodule", programs+string(filepath.Separator), "./...")
	readOnly(t, tree, "docs", "testdata/val.txt", "README.md")
	before := hashes(t, tree)
	short := map[string][]string{ // flags that make an example quick
		"prefixcache":           {"-sessions", "5"},
		"quantized-collectives": {"-only", "states", "-tokens", "512"},
	}
	list, err := os.ReadDir(programs)
	if err != nil || len(list) < len(examples) {
		t.Fatalf("%d programs of %d examples, %v", len(list), len(examples), err)
	}
	for _, program := range list {
		c := exec.Command(filepath.Join(programs, program.Name()), short[program.Name()]...)
		c.Dir, c.Env = tree, append(os.Environ(), "TMPDIR="+t.TempDir())
		if out, err := c.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s", program.Name(), err, out)
		}
		if after := hashes(t, tree); !maps.Equal(before, after) {
			t.Fatalf("%s changes the tree: %d files of %d", program.Name(), len(after), len(before))
		}
	}
}

// readOnly copies files and folders of the repository, and takes the right to write away.
func readOnly(t *testing.T, to string, paths ...string) {
	t.Helper()
	var folders []string
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			at := filepath.Join(to, path)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				return err
			}
			return os.WriteFile(at, data, 0o444)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	for _, path := range folders {
		if err == nil {
			err = os.Chmod(path, 0o555)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // so that the test's folder can be removed
		for _, path := range folders {
			_ = os.Chmod(path, 0o755)
		}
	})
}

// hashes has the contents of all files below a folder.
func hashes(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	out := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = sha256.Sum256(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
