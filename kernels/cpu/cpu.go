// Package cpu has the kernels for a CPU, in f32. Sums run in one fixed order per result element, so
// a row's result does not depend on what else is in the batch.
package cpu

import "github.com/krait-ml/krait/kernels"

// Kernels is the set; each file registers the kernels that it has.
var Kernels = kernels.Set{}

func init() { compose(Kernels) }

// compose adds what is fused for other devices.
func compose(set kernels.Set) {
	set.Compose(func(t *kernels.Tensor, n int) { t.F32 = make([]float32, n) })
}
