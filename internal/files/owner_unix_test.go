//go:build unix

package files

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOwned: a file that others may use is exposed, and one of another user is not owned.
func TestOwned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, mode := range []os.FileMode{0o600, 0o640, 0o601, 0o700} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := mode&0o077 != 0; Exposed(info) != want || !Owned(info) {
			t.Errorf("%v: exposed %v, want %v; owned %v", mode, Exposed(info), want, Owned(info))
		}
	}
	if os.Geteuid() != 0 {
		return // only root may give a file away
	}
	if err := os.Chown(path, 1, 1); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || Owned(info) {
		t.Errorf("a file of another user is owned, %v", err)
	}
}
