//go:build !nocuda && !static

package devices

import (
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/nvidia"
)

func nvidiaDriver() (driver.Driver, error) { return nvidia.New() }
