package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Limits of what is read whole, in bytes: far above any that is meant well.
const (
	Config    = 16 << 20  // config.json and its like, placement files
	Tokenizer = 100 << 20 // tokenizer.json
	Graph     = 64 << 20  // graph text
	Text      = 256 << 20 // of a prompt, or to evaluate
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

// pipeTime is how long a named pipe may take to come to its end.
const pipeTime = 10 * time.Second

// ReadPipe is Read, and takes a named pipe as well, such as a shell makes of
// <(command): it must end within 10 seconds. It can be read once.
func ReadPipe(path string, limit int64) ([]byte, error) {
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		return Read(path, limit)
	}
	return readPipe(path, limit, pipeTime)
}

func readPipe(path string, limit int64, most time.Duration) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // blocks for good if no process opens the pipe for writing
		f, err := os.Open(path)
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer f.Close()
		_ = f.SetReadDeadline(time.Now().Add(most)) // where pipes have none, the caller goes on
		data, err := io.ReadAll(io.LimitReader(f, limit+1))
		if err == nil && int64(len(data)) > limit {
			err = tooLarge(path, limit)
		}
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		if errors.Is(r.err, os.ErrDeadlineExceeded) {
			break
		}
		return r.data, r.err
	case <-time.After(most):
	}
	return nil, fmt.Errorf("%s: the pipe did not come to its end in %v; write a file, and give that", path, most)
}

func tooLarge(path string, limit int64) error {
	return fmt.Errorf("%s: is larger than %d MiB, which is the most that Krait reads", path, limit>>20)
}
