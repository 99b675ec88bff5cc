//go:build !unix

package files

import (
	"io"
	"os"
)

// mapFile reads the first size bytes of a file: there is no mapping here.
func mapFile(file *os.File, size int) (*Map, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, err
	}
	return &Map{Data: data, file: file, unmap: func() error { return nil }}, nil
}

// look has nothing to look at: what was read stays.
func (m *Map) look() (time [2]int64, err error) { return time, nil }

func release([]byte) {}
