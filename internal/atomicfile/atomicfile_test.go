package atomicfile

import (
	"os"
	"path/filepath"
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
	if err := Write(filepath.Join(dir, "no", "out"), nil); err == nil {
		t.Error("wrote into a folder that is not there")
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
}
