//go:build !gorgonia_cu

package devices

import "github.com/krait-ml/krait/cuda/driver"

func gorgoniaDriver() (driver.Driver, error) {
	return nil, &driver.Error{
		Call: "open", Text: "this program was built without gorgonia.org/cu (tag gorgonia_cu)", Kind: driver.ErrNoDriver,
		Hint: "Build it where the headers of CUDA 11.8 and libcuda are: CGO_ENABLED=1 CGO_CFLAGS=-I/usr/local/cuda-11.8/include go build -tags gorgonia_cu. --device cuda needs neither, and does more.",
	}
}
