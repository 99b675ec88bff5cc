package safetensors

import (
	"fmt"
	"math"
	"os"
)

// Open maps the file at path into memory, read-only, and parses it like Parse.
// Pages are read from disk when they are first touched. The file must not be
// shortened while it is open; replacing it, as WriteFile does, is safe.
//
// It is an error when the path does not exist (errors.Is reports
// fs.ErrNotExist), is a directory or another thing that is not a regular file,
// and in every case in which Parse fails.
func Open(path string) (*File, error) {
	data, unmap, err := load(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(path, data)
	if err != nil {
		unmap()
		return nil, err
	}
	f.unmap = unmap
	return f, nil
}

// load returns the bytes of a file and a function that gives them back.
func load(path string) (data []byte, unmap func() error, err error) {
	// Before opening: to open a named pipe would wait for its writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, nil, err
	case info.IsDir():
		return nil, nil, fmt.Errorf("%s: is a directory, not a safetensors file", path)
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s: is not a regular file (%s)", path, info.Mode().Type())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close() // the mapping outlives it
	if info, err = file.Stat(); err != nil {
		return nil, nil, err
	}
	size := info.Size()
	if size > math.MaxInt {
		return nil, nil, fmt.Errorf("%s: %d bytes are more than this system can address", path, size)
	}
	if size == 0 { // which cannot be mapped; Parse will refuse it
		return nil, func() error { return nil }, nil
	}
	if data, unmap, err = mapFile(file, int(size)); err != nil {
		return nil, nil, fmt.Errorf("%s: mapping %d bytes into memory: %w", path, size, err)
	}
	return data, unmap, nil
}
