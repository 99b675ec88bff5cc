package reference

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Register gives a registered operation its plain kernel, which is what validation and
// other kernels are held against: as the definition reads, by [At] and [Set], whose numbers are
// float64 whatever the tensors have. The new state of an operation that has one is the memory of
// the old, with a row per slot. It is called after [graph.RegisterOp], from an init function;
// a name that is not in the table, or has a kernel, panics.
func Register(op string, run func(c *kernels.Call)) {
	if _, ok := graph.Lookup(op); !ok {
		panic(fmt.Sprintf("reference.Register: %v (graph.RegisterOp comes first)", graph.Unknown(op)))
	}
	if _, ok := Kernels[op]; ok {
		panic(fmt.Sprintf("reference.Register: operation %s has a kernel", op))
	}
	Kernels[op] = whole(run)
}

// At is column j of row i: of a tensor with more axes than two, the others are walked by
// columns, the last fastest.
func At(t *kernels.Tensor, i, j int) float64 { return at(t, i, j) }

// Set writes column j of row i, rounded to what the tensor has.
func Set(t *kernels.Tensor, i, j int, v float64) { set(t, i, j, v) }

// Fill sets every element of the first result.
func Fill(c *kernels.Call, f func(i, j int) float64) { fill(c, f) }
