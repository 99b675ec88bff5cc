//go:build gorgonia

package cli

import "github.com/krait-ml/krait/interop/gorgonia"

func init() { references["gorgonia"] = gorgonia.Kernels }
