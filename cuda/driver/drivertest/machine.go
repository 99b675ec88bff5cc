// Package drivertest holds what every implementation of package driver must do,
// as tests; Run runs them. It also has small kernels and helpers for tests of
// one implementation.
package drivertest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
)

// Kernels is PTX with the kernels store, add and wild.
//
//go:embed kernels.ptx
var Kernels []byte

// Device is a context bound to the test's thread, with the kernels loaded. What
// is made through it is closed when the test ends.
type Device struct {
	testing.TB
	driver.Context
	Driver driver.Driver

	module driver.Module
}

// Open opens a device.
func Open(t testing.TB, d driver.Driver, index int) *Device {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	c, err := d.Open(index)
	v := &Device{TB: t, Context: c, Driver: d}
	v.Must(err)
	v.Must(c.Bind())
	t.Cleanup(func() { c.Close() })
	v.module, err = c.Module(Kernels, "kernels.ptx")
	v.Must(err)
	t.Cleanup(func() { v.module.Close() })
	return v
}

// Must ends the test on an error, or skips it if the driver cannot do that.
func (v *Device) Must(err error) {
	v.Helper()
	if errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrMissingLibrary) {
		v.Skip(driver.Explain(err))
	}
	if err != nil {
		v.Fatal(driver.Explain(err))
	}
}

// Refused checks that an error has a code of CUDA.
func (v *Device) Refused(err error, code int) {
	v.Helper()
	var e *driver.Error
	if !errors.As(err, &e) || e.Code != code {
		v.Errorf("error %v, want code %d", err, code)
	}
}

// NewStream makes a stream.
func (v *Device) NewStream() driver.Stream {
	v.Helper()
	s, err := v.Stream()
	v.Must(err)
	v.Cleanup(func() { s.Close() })
	return s
}

// NewEvent makes an event.
func (v *Device) NewEvent(timing bool) driver.Event {
	v.Helper()
	e, err := v.Event(timing)
	v.Must(err)
	v.Cleanup(func() { e.Close() })
	return e
}

// Words allocates memory for n numbers.
func (v *Device) Words(n int) driver.Ptr {
	v.Helper()
	p, err := v.Alloc(int64(n) * 4)
	v.Must(err)
	v.Cleanup(func() { v.Release(p) })
	return p
}

// Pinned allocates pinned memory for n numbers.
func (v *Device) Pinned(n int) []byte {
	v.Helper()
	b, err := v.AllocHost(int64(n) * 4)
	v.Must(err)
	v.Cleanup(func() { v.ReleaseHost(b) })
	return b
}

// Kernel finds a kernel.
func (v *Device) Kernel(name string) driver.Function {
	v.Helper()
	f, err := v.module.Function(name)
	v.Must(err)
	return f
}

// Store launches the kernel that sets n numbers.
func (v *Device) Store(s driver.Stream, dst driver.Ptr, value uint32, n int) error {
	return s.Launch(v.Kernel("store"), launch(n, Params(dst, value, uint32(n))))
}

// Add launches the kernel that adds a value to n numbers.
func (v *Device) Add(s driver.Stream, dst, src driver.Ptr, value uint32, n int) error {
	return s.Launch(v.Kernel("add"), launch(n, Params(dst, src, value, uint32(n))))
}

// Wild launches the kernel that writes where it must not.
func (v *Device) Wild(s driver.Stream) error {
	return s.Launch(v.Kernel("wild"), launch(1, Params(driver.Ptr(64))))
}

func launch(n int, params []byte) *driver.LaunchConfig {
	return &driver.LaunchConfig{Grid: [3]uint32{uint32(n+31) / 32, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: params}
}

// Params lays out parameters of type driver.Ptr and uint32.
func Params(list ...any) (b []byte) {
	for _, x := range list {
		switch x := x.(type) {
		case driver.Ptr:
			for len(b)%8 != 0 {
				b = append(b, 0)
			}
			b = binary.LittleEndian.AppendUint64(b, uint64(x))
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, x)
		}
	}
	return b
}

// Words are numbers as they lie in memory.
func Words(list ...uint32) (b []byte) {
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// Want waits for the stream and compares numbers in device memory.
func (v *Device) Want(s driver.Stream, p driver.Ptr, want ...uint32) {
	v.Helper()
	b := make([]byte, 4*len(want))
	v.Must(s.CopyOut(b, p))
	v.Must(s.Synchronize())
	v.Equal(b, want...)
}

// Equal compares numbers in host memory.
func (v *Device) Equal(b []byte, want ...uint32) {
	v.Helper()
	var got []uint32
	for i := range want {
		got = append(got, binary.LittleEndian.Uint32(b[4*i:]))
	}
	if !slices.Equal(got, want) {
		v.Errorf("memory holds %d, want %d", got, want)
	}
}

// WantFloats is Want for f32.
func (v *Device) WantFloats(s driver.Stream, p driver.Ptr, want ...float32) {
	v.Helper()
	got := make([]float32, len(want))
	b := make([]byte, 4*len(want))
	v.Must(s.CopyOut(b, p))
	v.Must(s.Synchronize())
	for i := range got {
		got[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	if !slices.Equal(got, want) {
		v.Errorf("memory holds %v, want %v", got, want)
	}
}

// Fill is n times the same number.
func Fill(value uint32, n int) []uint32 { return slices.Repeat([]uint32{value}, n) }
