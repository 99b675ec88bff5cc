package main

import "golang.org/x/sys/unix"

// memory is how many bytes of memory the machine has.
func memory() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0
	}
	return int64(uint64(s.Totalram) * uint64(s.Unit))
}
