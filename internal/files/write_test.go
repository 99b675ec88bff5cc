package files

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	for _, want := range []string{"text", "other"} {
		if err := Write(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	missing := filepath.Join(dir, "no", "out")
	if err := Write(missing, nil); err == nil || !strings.Contains(err.Error(), missing+":") {
		t.Errorf("into a folder that is not there: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
}

// TestWriteKeeps: the mode of a file stays, and a device is one afterwards.
func TestWriteKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	for _, mode := range []os.FileMode{0o600, 0o640, 0o755} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := Write(path, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("mode %v, %v; want %v", info.Mode(), err, mode)
		}
	}
	if err := Write(os.DevNull, []byte("x")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Fatalf("%s became %v, %v", os.DevNull, info.Mode(), err)
	}
}

// TestWritePrivate: only the owner may read the file, even if others could before.
func TestWritePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	path := filepath.Join(t.TempDir(), "out")
	for range 2 {
		if err := WritePrivate(path, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWriteThroughLinks: links stay, also those to what is not there yet.
func TestWriteThroughLinks(t *testing.T) {
	dir := t.TempDir()
	far := filepath.Join(dir, "far", "deep")
	if err := os.MkdirAll(far, 0o755); err != nil {
		t.Fatal(err)
	}
	link := func(to, name string) string {
		name = filepath.Join(dir, name)
		if err := os.Symlink(to, name); err != nil {
			t.Skip(err)
		}
		return name
	}
	link("far/deep", "folder")
	link("../out", "far/deep/up") // far/out: .. is the folder above deep
	for path, target := range map[string]string{
		link("target", "link"): "target", link("link", "twice"): "target", link("folder/up", "chain"): "far/out",
	} {
		for _, text := range []string{"new", "again"} {
			if err := Write(path, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, target)); string(got) != text {
				t.Errorf("%s: %q, %v; want %q", target, got, err, text)
			}
		}
		if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v", path, err)
		}
	}
	if err := Write(link("loop", "loop"), nil); err == nil {
		t.Error("a link to itself was written through")
	}
}
