//go:build !gorgonia_cu

package devices

import "github.com/krait-ml/krait/cuda/driver"

func gorgoniaDriver() (driver.Driver, error) {
	return nil, &driver.Error{
		Call: "open", Text: "this program was built without gorgonia.org/cu (tag gorgonia_cu)", Kind: driver.ErrNoDriver,
		Hint: "Build it with CGO_ENABLED=1 go build -tags gorgonia_cu ./cmd/krait, where libcuda and the headers of CUDA 11.8 are (docs/cuda.md). --device cuda needs neither, and does more.",
	}
}
