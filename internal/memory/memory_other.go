//go:build !linux

package memory

// Total is not known here.
func Total() int64 { return 0 }

// Limit is not known here.
func Limit() int64 { return 0 }
