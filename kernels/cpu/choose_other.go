//go:build !amd64

package cpu

var vectorChoosing = &plainChoosing
