//go:build gorgonia_cu && linux && (amd64 || arm64)

package gorgoniacu_test

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
	"github.com/krait-ml/krait/cuda/gorgoniacu"
	"github.com/krait-ml/krait/cuda/sim"
)

// TestConformance: as the other drivers, on the machine that stands behind libcuda.
func TestConformance(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Driver {
				machine := simulate(t, sim.Options{Devices: 2, Seed: seed, Memory: 32 << 20})
				t.Cleanup(func() {
					if machine == nil {
						return
					}
					for _, leak := range machine.Leaks() {
						t.Errorf("leak: %s", leak)
					}
				})
				d, err := gorgoniacu.New()
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
	}
}
