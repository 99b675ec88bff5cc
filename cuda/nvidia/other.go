//go:build !linux || (!amd64 && !arm64)

package nvidia

import (
	"runtime"

	"github.com/krait-ml/krait/cuda/driver"
)

// New opens NVIDIA's driver, which this system does not have.
func New() (driver.Driver, error) {
	return nil, &driver.Error{
		Call: "open libcuda.so.1",
		Text: "CUDA is used on Linux (amd64, arm64) only; this is " + runtime.GOOS + " on " + runtime.GOARCH,
		Hint: "Run on the CPU, or on the simulated device.",
		Kind: driver.ErrNoDriver,
	}
}
