package files

import (
	"fmt"
	"io"
	"os"
)

// Limits of what is read whole, in bytes: far above any that is meant well.
const (
	Config    = 16 << 20  // config.json and its like, placement files
	Tokenizer = 100 << 20 // tokenizer.json
	Graph     = 256 << 20 // graph text
)

// Read reads a regular file of at most limit bytes. Anything else is an error that
// names the file: a named pipe may never end, or never begin.
func Read(path string, limit int64) ([]byte, error) {
	// Before opening: to open a named pipe would wait for its writer.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s: is a folder, not a file", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file (%s)", path, info.Mode().Type())
	case info.Size() > limit:
		return nil, tooLarge(path, limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may have grown, and those of /proc have no size
	if err == nil && int64(len(data)) > limit {
		err = tooLarge(path, limit)
	}
	return data, err
}

func tooLarge(path string, limit int64) error {
	return fmt.Errorf("%s: is larger than %d MiB, which is the most that Krait reads", path, limit>>20)
}
