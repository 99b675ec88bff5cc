package driver

import (
	"errors"
	"fmt"
	"strings"
)

// Kinds of errors, for errors.Is.
var (
	// ErrOutOfMemory: the device, or the host's pinned memory, is full.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrNoDriver: there is no driver, no device, or the driver is too old.
	ErrNoDriver = errors.New("no usable CUDA driver")
	// ErrMissingLibrary: cuBLAS or NCCL is not installed, or too old.
	ErrMissingLibrary = errors.New("a library is missing")
	// ErrKernelFault: a kernel did what it must not; the process can use no GPU any more.
	ErrKernelFault = errors.New("a kernel failed; the context is lost")
	// ErrDeviceLost: the device does not answer any more.
	ErrDeviceLost = errors.New("the device is lost")
	// ErrUnsupported: this implementation cannot do that at all.
	ErrUnsupported = errors.New("not supported by this driver")
)

// Error is the failure of a call.
type Error struct {
	Call   string // "cuMemAlloc_v2"
	Code   int    // the library's number for it; 0 if it is not from a library
	Name   string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text   string // "out of memory"
	Detail string // "12.3 GB asked, 1.2 GB free"; the compiler's log; the kernel's fault
	Hint   string // what to do, in plain words
	Kind   error  // one of the Err values, or nil
	Cause  error  // an error beneath, or nil
}

// Error is a line, or several if the detail has some: "cuMemAlloc_v2:
// CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; 12.3 GB asked, 1.2 GB free".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Call)
	if e.Name != "" {
		fmt.Fprintf(&b, ": %s (%d)", e.Name, e.Code)
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	if e.Detail != "" {
		b.WriteString("; " + e.Detail)
	}
	return b.String()
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	var under []error
	for _, err := range []error{e.Kind, e.Cause} {
		if err != nil {
			under = append(under, err)
		}
	}
	return under
}

// Because adds a detail and returns e.
func (e *Error) Because(format string, args ...any) *Error {
	e.Detail = fmt.Sprintf(format, args...)
	return e
}

// Explain is the error's text with, where it is known, a line that says what
// to do about it.
func Explain(err error) string {
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) || e.Hint == "" {
		return err.Error()
	}
	return err.Error() + "\n" + e.Hint
}

// Bytes is a size for people, in powers of 1000.
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
