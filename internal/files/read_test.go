package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in")
	if err := os.WriteFile(path, []byte("1234567"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, ok := range map[int64]bool{6: false, 7: true, 8: true} {
		if data, err := Read(path, limit); (err == nil) != ok || ok && string(data) != "1234567" {
			t.Errorf("at most %d bytes: %q, %v", limit, data, err)
		}
	}
	for bad, want := range map[string]string{dir: "is a folder", os.DevNull: "is not a regular file", filepath.Join(dir, "no"): "no"} {
		if _, err := Read(bad, 10); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
