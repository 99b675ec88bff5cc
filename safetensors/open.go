package safetensors

import (
	"cmp"
	"fmt"
	"math"
	"os"

	"github.com/krait-ml/krait/internal/files"
)

// mapping is a file in memory, where there are maps. The file stays open, to look
// at it.
type mapping struct {
	data  []byte
	file  *os.File
	time  [2]int64 // of the last write when it was mapped
	unmap func() error
}

// intact is an error when the file is not what it was when it was mapped, as far as
// its size and its time tell.
func (m *mapping) intact() error {
	time, err := m.look()
	if err == nil && time != m.time {
		err = files.Changed(m.file.Name())
	}
	return err
}

func (m *mapping) close() error { return cmp.Or(m.unmap(), m.file.Close()) }

// Open maps the file at path into memory, read-only, and parses it like Parse.
// Pages are read from disk when they are first touched. A file that is cut or written
// to while it is open is an error for those who read it in [files.Guard] or ask
// Intact; replacing it by renaming another, as WriteFile does, is safe.
//
// It is an error when the path does not exist (errors.Is reports
// fs.ErrNotExist), is a directory or another thing that is not a regular file,
// and in every case in which Parse fails.
func Open(path string) (*File, error) {
	m, err := load(path)
	if err != nil {
		return nil, err
	}
	return parseMapped(path, m)
}

// parseMapped is the file that a mapping has.
func parseMapped(name string, m *mapping) (f *File, err error) {
	err = files.Guard(func() error {
		f, err = Parse(name, m.data)
		return err
	})
	if err != nil {
		m.close()
		return nil, err
	}
	f.mapping = m
	return f, nil
}

// load maps a file.
func load(path string) (*mapping, error) {
	// Before opening: to open a named pipe would wait for its writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s: is a directory, not a safetensors file", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file (%s)", path, info.Mode().Type())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := mapAll(file)
	if err != nil {
		file.Close()
	}
	return m, err
}

func mapAll(file *os.File) (*mapping, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	switch {
	case size > math.MaxInt:
		return nil, fmt.Errorf("%s: %d bytes are more than this system can address", file.Name(), size)
	case size == 0: // which cannot be mapped
		_, err := Parse(file.Name(), nil)
		return nil, err
	}
	m, err := mapFile(file, int(size))
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes into memory: %w", file.Name(), size, err)
	}
	return m, nil
}
