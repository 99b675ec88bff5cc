//go:build unix

package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of a file, read-only. The mapping remembers the file's time.
func mapFile(file *os.File, size int) (*Map, error) {
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	m := &Map{Data: data, file: file}
	forget := Mapped(file.Name(), data)
	m.unmap = func() error {
		forget()
		return unix.Munmap(data)
	}
	if m.time, err = m.look(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// look is when the file was written last; an error where it has another size. It allocates nothing.
func (m *Map) look() (time [2]int64, err error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(m.file.Fd()), &s); err != nil {
		return time, err
	}
	if s.Size != int64(len(m.Data)) {
		return time, Changed(m.file.Name())
	}
	sec, nsec := s.Mtim.Unix()
	return [2]int64{sec, nsec}, nil
}

// release is advice: where the system does not take it, nothing is lost.
func release(data []byte) { _ = unix.Madvise(data, unix.MADV_DONTNEED) }
