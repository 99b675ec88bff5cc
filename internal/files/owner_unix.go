//go:build unix

package files

import (
	"io/fs"
	"os"
	"syscall"
)

// Exposed reports whether users other than its owner may use a file or folder.
func Exposed(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

// Owned reports whether the user of this process owns a file or folder.
func Owned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
