// Package memory says how much the machine has.
package memory

import "golang.org/x/sys/unix"

// Total is how many bytes of memory the machine has; 0: it is not known.
func Total() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0
	}
	return int64(uint64(s.Totalram) * uint64(s.Unit))
}
