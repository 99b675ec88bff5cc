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
