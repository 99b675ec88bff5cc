//go:build !amd64 || !linux

package cpu

func hasAMX() bool { return false }
