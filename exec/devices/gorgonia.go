//go:build gorgonia_cu

package devices

import (
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/gorgoniacu"
)

func gorgoniaDriver() (driver.Driver, error) { return gorgoniacu.New() }
