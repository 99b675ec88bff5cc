//go:build !linux

package sim

// thread does not tell threads apart on this system: what one binds is bound
// for all, and a missing Bind may go unnoticed.
func thread() int { return 0 }
