// Package files reads and writes files that others may have put there: what is
// read is a regular file of a bounded size, what is written is whole or not there.
package files

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write writes data to path. A file is whole at every moment: data goes to a temporary file beside
// it that is renamed, with the mode of the file that was there. Symbolic links are followed. Named
// pipes, devices and other files that are not regular are written to directly.
func Write(path string, data []byte) error { return write(path, data, false) }

// WritePrivate is [Write] of a file that afterwards only its owner may read and write.
func WritePrivate(path string, data []byte) error { return write(path, data, true) }

func write(path string, data []byte, private bool) error {
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !info.Mode().IsRegular() {
		return direct(path, data)
	}
	target, err := follow(path)
	if err == nil && info != nil {
		err = writable(target)
	}
	if err == nil {
		err = replace(target, data, info, private)
	}
	return named(path, err)
}

// direct writes to what is there.
func direct(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return cmp.Or(err, f.Close())
}

// mostLinks is how many symbolic links may lead from one to the next.
const mostLinks = 40

// follow is what the symbolic links at path lead to, which need not be there.
func follow(path string) (string, error) {
	for range mostLinks {
		to, err := os.Readlink(path)
		if err != nil { // it is no link
			return path, nil
		}
		if !filepath.IsAbs(to) { // not joined: that takes .. for the folder above, which it is not behind a link
			to = filepath.Dir(path) + string(filepath.Separator) + to
		}
		path = to
	}
	return "", fmt.Errorf("more than %d symbolic links", mostLinks)
}

// writable fails for a file that may not be written, which a rename would replace.
func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// replace puts a new file in the place of the one that info is of; nil: of none.
func replace(path string, data []byte, info fs.FileInfo, private bool) error {
	dir, base := filepath.Split(path)
	temporary := fmt.Sprintf("%s.%.100s.%08x.tmp", dir, base, rand.Uint32())
	mode := fs.FileMode(0o666)
	if private {
		mode = 0o600
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && info != nil && !private {
		err = f.Chmod(info.Mode().Perm())
	}
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // the first error counts
	}
	return err
}

// named is an error of the file that the caller knows, not of a temporary one.
func named(path string, err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		err = p.Err
	case errors.As(err, &l):
		err = l.Err
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}
