package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// errLocked is the error of a file that another process has locked.
var errLocked = errors.New("another process has it locked")

// lock waits until no other process has a file locked, and locks it. The files are those that
// Hugging Face's programs lock. A lock ends with its process.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for err = tryLock(f); errors.Is(err, errLocked); err = tryLock(f) {
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { f.Close() }, nil
}
