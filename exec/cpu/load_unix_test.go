//go:build unix

package cpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lowering"
	"golang.org/x/sys/unix"
)

// loadOf loads parameters of these sizes from a mapped file that is cut to what is left.
func loadOf(t *testing.T, workers, left int, sizes []int) (told []int64, err error) {
	t.Helper()
	total := 0
	for _, n := range sizes {
		total += n
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "weights"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(total)); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, total, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data)
	defer files.Mapped(f.Name(), data)()
	if err := f.Truncate(int64(left)); err != nil {
		t.Fatal(err)
	}
	r := &rank{s: &lowering.Schedule{}}
	rest := data
	for _, n := range sizes {
		r.s.Buffers = append(r.s.Buffers, lowering.Buffer{Space: lowering.Param}, lowering.Buffer{Space: lowering.State})
		r.memory = append(r.memory, rest[:n:n], nil)
		rest = rest[n:]
	}
	m := &machine{ranks: []*rank{r}}
	err = m.load(workers, func(done, of int64) {
		if of != int64(total) {
			t.Errorf("told of %d bytes, there are %d", of, total)
		}
		told = append(told, done)
	})
	return told, err
}

// TestLoad: all weights are touched, progress is told in order up to the end, and a file
// that was cut is an error that names it.
func TestLoad(t *testing.T) {
	sizes := []int{0, 1, pageBytes, loadChunk - 1, loadChunk + 1, 3 * loadChunk}
	total := 0
	for _, n := range sizes {
		total += n
	}
	for _, workers := range []int{1, 3} {
		told, err := loadOf(t, workers, total, sizes)
		if err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		for _, n := range told {
			if n <= last {
				t.Errorf("told %v", told)
			}
			last = n
		}
		if last != int64(total) {
			t.Errorf("told of %d of %d bytes", last, total)
		}
		if _, err := loadOf(t, workers, total/2, sizes); err == nil || !strings.Contains(err.Error(), "weights was changed or cut") {
			t.Errorf("a file that was cut: %v", err)
		}
	}
}
