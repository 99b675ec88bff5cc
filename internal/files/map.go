package files

import (
	"cmp"
	"fmt"
	"math"
	"os"
)

// Map is a memory-mapped file, or its contents on systems without mmap. The file stays open, so
// that [Map.Intact] can check it.
type Map struct {
	Data  []byte // not to be modified; a view that Close ends
	file  *os.File
	time  [2]int64 // of the last write when it was mapped
	unmap func() error
}

// OpenMap maps a regular file, read-only; an empty one has no data. The kind of file that
// is expected is for errors.
func OpenMap(path, kind string) (*Map, error) {
	// Before opening: to open a named pipe would wait for its writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s: is a directory, not a %s file", path, kind)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file (%s)", path, info.Mode().Type())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := MapFile(file)
	if err != nil {
		file.Close()
	}
	return m, err
}

// MapFile is [OpenMap] for a regular file that is open, which Close closes.
func MapFile(file *os.File) (*Map, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	switch {
	case size > math.MaxInt:
		return nil, fmt.Errorf("%s: %d bytes are more than this system can address", file.Name(), size)
	case size == 0: // which cannot be mapped
		return &Map{file: file, unmap: func() error { return nil }}, nil
	}
	m, err := mapFile(file, int(size))
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes into memory: %w", file.Name(), size, err)
	}
	return m, nil
}

// Intact is an error when the file is not what it was when it was mapped, as far as
// its size and its time tell. It is cheap. No map, nil, is intact.
func (m *Map) Intact() error {
	if m == nil || len(m.Data) == 0 {
		return nil
	}
	time, err := m.look()
	if err == nil && time != m.time {
		err = Changed(m.file.Name())
	}
	return err
}

// Close ends the map, unless it is nil: Data must not be touched afterwards.
func (m *Map) Close() error {
	if m == nil {
		return nil
	}
	return cmp.Or(m.unmap(), m.file.Close())
}

// ParseMap parses the data of a map, guarded (see [Guard]), and closes it where that fails.
func ParseMap[T any](m *Map, name string, parse func(name string, data []byte) (T, error)) (out T, err error) {
	err = Guard(func() error {
		out, err = parse(name, m.Data)
		return err
	})
	if err != nil {
		m.Close()
	}
	return out, err
}
