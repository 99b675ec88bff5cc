//go:build !unix

package safetensors

import (
	"io"
	"os"
)

// mapFile reads the first size bytes of a file: there is no mapping here.
func mapFile(file *os.File, size int) (data []byte, unmap func() error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
