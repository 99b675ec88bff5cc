package sim

import "syscall"

// thread identifies the calling OS thread, to which contexts are bound.
func thread() int { return syscall.Gettid() }
