package sim

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

var _ driver.Driver = (*Driver)(nil)

// TestConformance: under every seed, and nothing leaks.
func TestConformance(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Driver {
				d := New(Options{Devices: 3, Seed: seed, Memory: 32 << 20, Capability: [2]int{8 + int(seed%2), 0}})
				t.Cleanup(func() {
					for _, leak := range d.Leaks() {
						t.Errorf("leak: %s", leak)
					}
				})
				return d
			})
		})
	}
}
