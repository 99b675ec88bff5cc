package cpu

import (
	"fmt"
	"sync/atomic"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// taken says that a set was read, to which nothing can be added any more.
var taken atomic.Bool

// Register gives a registered operation its kernel for the CPU, for all instruction
// sets. Tensors of activations are f32, and rows need not lie one after another
// ([kernels.Tensor.Row] finds them). The kernel computes a row's result from that row alone, in
// the same order whatever else is in the batch. It is called after [graph.RegisterOp], from an
// init function; a name that is not in the table, or has a kernel, panics.
func Register(op string, k kernels.Kernel) {
	if _, ok := graph.Lookup(op); !ok {
		panic(fmt.Sprintf("cpu.Register: %v (graph.RegisterOp comes first)", graph.Unknown(op)))
	}
	if _, ok := Kernels[op]; ok {
		panic(fmt.Sprintf("cpu.Register: operation %s has a kernel", op))
	}
	if k.Run == nil || k.Units == nil {
		panic(fmt.Sprintf("cpu.Register: the kernel of %s has no Run or no Units (kernels.RowUnits cuts by rows)", op))
	}
	if taken.Load() {
		panic(fmt.Sprintf("cpu.Register: %s comes too late, a model is open already: register it in an init function", op))
	}
	Kernels[op] = k
}
