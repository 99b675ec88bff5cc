//go:build unix && !solaris && !aix

package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// listenSocket listens at a socket of the file system. A stale one, which a killed process
// left, is replaced. The folder is locked meanwhile: of several processes that start at once, one
// replaces it, and the others find it answered.
func listenSocket(path string) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for tries := 0; ; tries++ {
		if err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			break
		}
		if tries == 100 {
			return nil, fmt.Errorf("the folder of %s is locked by another process: %w", path, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if info, e := os.Lstat(path); e != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s exists and is not a socket: %w", path, err)
	}
	c, e := net.DialTimeout("unix", path, time.Second)
	if e == nil {
		c.Close()
		return nil, fmt.Errorf("another process listens at %s: %w", path, err)
	}
	if !errors.Is(e, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w; whether another process listens at %s is unknown: %w", err, path, e)
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}
