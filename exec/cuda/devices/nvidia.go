//go:build !nocuda

package devices

import (
	"github.com/krait-ml/krait/exec/cuda/driver"
	"github.com/krait-ml/krait/exec/cuda/nvidia"
)

func nvidiaDriver() (driver.Driver, error) { return nvidia.New() }
