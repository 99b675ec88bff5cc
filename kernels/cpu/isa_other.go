//go:build !amd64

package cpu

func hasAVX2() bool       { return false }
func hasAVX512() bool     { return false }
func hasAVX512BF16() bool { return false }
