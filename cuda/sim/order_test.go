package sim

import (
	"errors"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

// TestOrdered: work that shares memory must be ordered, in any of the possible
// ways. Work that is not ordered is found with every seed, whatever runs first.
func TestOrdered(t *testing.T) {
	for seed := range uint64(4) {
		for _, c := range []struct {
			name string
			run  func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr)
			bad  string
		}{
			{"one stream", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(v.Add(a, y, x, 1, 4))
			}, ""},
			{"read before it is written", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(v.Add(b, y, x, 1, 4))
			}, "nothing orders them"},
			{"written twice", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(v.Store(b, x, 1, 4))
			}, "writes what cuLaunchKernel of store writes, 16 bytes"},
			{"neighbours", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 2))
				v.Must(v.Store(b, x+8, 1, 2))
			}, ""},
			{"both read", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Add(a, y, x, 1, 2))
				v.Must(v.Add(b, y+8, x, 1, 2))
			}, ""},
			{"a copy", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(b.Copy(y, x, 16))
			}, "nothing orders them"},
			{"the host's function", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(b.(driver.HostStream).Host(&driver.HostCall{Name: "f", Reads: []driver.Range{{At: x + 12, Bytes: 4}}, Work: func(driver.HostMemory) error { return nil }}))
			}, "nothing orders them"},
			{"the host's function in a stream", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(a.(driver.HostStream).Host(&driver.HostCall{Name: "f", Reads: []driver.Range{{At: x, Bytes: 16}}, Writes: []driver.Range{{At: y, Bytes: 16}},
					Work: func(m driver.HostMemory) error {
						var data [16]byte
						return errors.Join(m.Read(x, data[:]), m.Write(y, data[:]))
					}}))
				v.Must(v.Add(a, x, y, 1, 4))
			}, ""},
			{"an event", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				e := v.NewEvent(false)
				v.Must(a.Record(e))
				v.Must(b.Wait(e))
				v.Must(v.Add(b, y, x, 1, 4))
			}, ""},
			{"an event that comes too early", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				e := v.NewEvent(false)
				v.Must(a.Record(e))
				v.Must(v.Store(a, x, 1, 4))
				v.Must(b.Wait(e))
				v.Must(v.Add(b, y, x, 1, 4))
			}, "nothing orders them"},
			{"the host", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(a.Synchronize())
				v.Must(v.Add(b, y, x, 1, 4))
			}, ""},
			{"the host, who waited for another", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(b.Synchronize())
				v.Must(v.Add(b, y, x, 1, 4))
			}, "nothing orders them"},
			{"the host, who waited for all", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				v.Must(v.Store(a, x, 1, 4))
				v.Must(v.Synchronize())
				v.Must(v.Add(b, y, x, 1, 4))
			}, ""},
			{"a graph", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				fork, join, end := v.NewEvent(false), v.NewEvent(false), v.NewEvent(false)
				v.Must(a.BeginCapture())
				v.Must(v.Store(a, x, 1, 4))
				v.Must(a.Record(fork))
				v.Must(b.Wait(fork))
				v.Must(v.Add(b, y, x, 1, 4))
				v.Must(b.Record(join))
				v.Must(a.Wait(join))
				g, err := a.EndCapture()
				v.Must(err)
				defer g.Close()
				for range 2 {
					v.Must(g.Launch(a))
				}
				v.Must(a.Record(end))
				v.Must(b.Wait(end))
				v.Must(v.Store(b, y, 1, 4))
				v.Must(b.Synchronize())
			}, ""},
			{"a graph whose branches meet too late", func(v *drivertest.Device, a, b driver.Stream, x, y driver.Ptr) {
				fork, join := v.NewEvent(false), v.NewEvent(false)
				v.Must(a.BeginCapture())
				v.Must(a.Record(fork))
				v.Must(b.Wait(fork))
				v.Must(v.Store(a, x, 1, 4))
				v.Must(v.Add(b, y, x, 1, 4))
				v.Must(b.Record(join))
				v.Must(a.Wait(join))
				g, err := a.EndCapture()
				v.Must(err)
				v.Must(g.Launch(a))
			}, "nothing orders them"},
		} {
			d := New(Options{Seed: seed, Ordered: true})
			v := drivertest.Open(t, d, 0)
			a, b := v.NewStream(), v.NewStream()
			x, y := v.Words(4), v.Words(4)
			v.Must(v.Store(a, x, 1, 4))
			v.Must(v.Store(a, y, 1, 4))
			v.Must(a.Synchronize())
			c.run(v, a, b, x, y)
			err := v.Synchronize()
			if c.bad == "" && err != nil {
				t.Errorf("seed %d, %s: %v", seed, c.name, err)
			} else if c.bad != "" {
				contains(t, err, nil, c.bad)
			}
		}
	}
}

// TestHostRefuses: a function of the host names memory that the device has.
func TestHostRefuses(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s := v.NewStream().(driver.HostStream)
	v.Refused(s.Host(&driver.HostCall{Name: "f", Writes: []driver.Range{{At: 64, Bytes: 4}}, Work: func(driver.HostMemory) error { return nil }}), driver.InvalidValue)
}
