package cuda

import (
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	kernels "github.com/krait-ml/krait/kernels/cuda"
)

// TestSharedMemoryGrows: a kernel may have the shared memory of its largest launch
// so far, in whichever order launches come.
func TestSharedMemoryGrows(t *testing.T) {
	d := &Device{Driver: sim.New(sim.Options{})}
	g, err := openGPU(d, driver.DeviceInfo{Capability: [2]int{8, 0}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	if err := g.do(func() error {
		s, err := g.ctx.Stream()
		if err != nil {
			return err
		}
		largest := uint32(0)
		for _, kb := range []uint32{16, 60, 100, 52, 16, 120} {
			f, err := g.function(&kernels.Launch{Module: "ssd_f32", Function: "ssd_scan_chunks", Shared: kb << 10})
			if err != nil {
				return err
			}
			// Also what was planned before must still be allowed.
			largest = max(largest, kb<<10)
			config := &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{256, 1, 1}, Shared: largest, Params: make([]byte, 224)}
			if err := s.Launch(f, config); err != nil {
				t.Errorf("%d KB after %d KB: %v", largest>>10, kb, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// asked is a kernel that notes how much dynamic shared memory was asked for it.
type asked struct {
	driver.Function
	static, dynamic int
}

func (a *asked) Attributes() (driver.FunctionInfo, error) {
	return driver.FunctionInfo{Shared: a.static}, nil
}

func (a *asked) SetMaxShared(bytes int) error {
	a.dynamic = bytes
	return nil
}

// TestAllowCountsStatic: what every block may have is for static and dynamic shared memory
// together.
func TestAllowCountsStatic(t *testing.T) {
	for _, c := range []struct{ static, dynamic, want int }{{0, 48 << 10, 0}, {0, 48<<10 + 1, 48<<10 + 1}, {1 << 10, 47 << 10, 0}, {1 << 10, 47<<10 + 1, 47<<10 + 1}} {
		a := &asked{static: c.static}
		f, err := newFunction(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.allow(uint32(c.dynamic)); err != nil || a.dynamic != c.want {
			t.Errorf("%d bytes besides %d: %d are asked for, want %d (%v)", c.dynamic, c.static, a.dynamic, c.want, err)
		}
	}
}
