// Package memory returns the memory size of the machine and of its control groups.
package memory

import "golang.org/x/sys/unix"

// Total is the memory of the machine in bytes; 0: unknown.
func Total() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0
	}
	return int64(uint64(s.Totalram) * uint64(s.Unit))
}
