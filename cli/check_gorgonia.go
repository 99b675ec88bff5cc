//go:build gorgonia

package cli

import (
	"maps"

	"github.com/krait-ml/krait/interop/gorgonia"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
)

func init() {
	references["gorgonia"] = func() kernels.Set {
		set := maps.Clone(reference.Kernels)
		maps.Copy(set, gorgonia.Kernels())
		return set
	}
}
