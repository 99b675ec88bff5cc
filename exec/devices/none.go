//go:build nocuda || static

package devices

import "github.com/krait-ml/krait/cuda/driver"

func nvidiaDriver() (driver.Driver, error) {
	return nil, &driver.Error{Call: "open", Text: "this program was built without CUDA (tag nocuda or static)", Kind: driver.ErrNoDriver}
}
