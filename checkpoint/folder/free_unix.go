//go:build linux || darwin

package folder

import "syscall"

// FreeBytes returns the free bytes on the disk of a folder, if they are known.
func FreeBytes(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
