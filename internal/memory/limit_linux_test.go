package memory

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGroupLimit: the least of a process's groups and those above them counts, of both versions,
// and what says nothing does not.
func TestGroupLimit(t *testing.T) {
	for name, c := range map[string]struct {
		list  string
		files map[string]string
		want  int64
	}{
		"none":        {"0::/\n", nil, 0},
		"version 2":   {"0::/a/b\n", map[string]string{"a/b/memory.max": "max\n", "a/memory.max": "4096\n", "memory.max": "8192\n"}, 4096},
		"its own":     {"0::/a/b\n", map[string]string{"a/b/memory.max": "1024\n", "a/memory.max": "4096\n"}, 1024},
		"container":   {"0::/../../x\n", map[string]string{"memory.max": "512\n"}, 512},
		"version 1":   {"9:name=systemd:/\n4:memory:/a\n0::/\n", map[string]string{"memory/a/memory.limit_in_bytes": "77\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 77},
		"others":      {"5:devices:/a\nmemory\n", map[string]string{"a/memory.max": "1\n", "devices/a/memory.max": "1\n"}, 0},
		"not numbers": {"0::/\n", map[string]string{"memory.max": "-5x"}, 0},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			at := filepath.Join(root, file)
			if os.MkdirAll(filepath.Dir(at), 0o700) != nil || os.WriteFile(at, []byte(text), 0o600) != nil {
				t.Fatal(at)
			}
		}
		list := filepath.Join(root, "list")
		if err := os.WriteFile(list, []byte(c.list), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := groupLimit(root, list); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if n := Limit(); n < 1 || n > Total() {
		t.Errorf("this process may take %d of %d bytes", n, Total())
	}
}
