package files

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// TestRelease: what was read of a map leaves memory, of that map only, and reads the same again.
func TestRelease(t *testing.T) {
	var maps [2]*Map
	for i := range maps {
		path := filepath.Join(t.TempDir(), "weights")
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte(i + 1)}, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := OpenMap(path, "weights")
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		maps[i] = m
	}
	read := func() {
		t.Helper()
		for i, m := range maps {
			if n := bytes.Count(m.Data, []byte{byte(i + 1)}); n != 1<<20 || resident(t, m.Data) != 1024 {
				t.Errorf("map %d: %d of its bytes are right, %d KiB in memory", i, n, resident(t, m.Data))
			}
		}
	}
	read()
	Release([][]byte{nil, make([]byte, 8), maps[0].Data[5000:6000]})
	if a, b := resident(t, maps[0].Data), resident(t, maps[1].Data); a != 0 || b != 1024 {
		t.Errorf("%d and %d KiB are in memory, want none and 1024", a, b)
	}
	read()
}

// resident is how many KiB of a map are in this process's memory.
func resident(t *testing.T, data []byte) (kib int) {
	t.Helper()
	all, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	here, s := false, bufio.NewScanner(bytes.NewReader(all))
	for s.Scan() {
		if strings.Contains(s.Text(), "-") && !strings.Contains(s.Text(), "kB") {
			here = strings.HasPrefix(s.Text(), fmt.Sprintf("%08x-", uintptr(unsafe.Pointer(&data[0]))))
		}
		if _, err := fmt.Sscanf(s.Text(), "Rss: %d kB", &kib); here && err == nil {
			return kib
		}
	}
	t.Fatal("the map is not among those of the process")
	return 0
}
