package exec

import (
	"fmt"

	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Results are what a step gave, valid until the engine's next step, or Close.
type Results struct {
	// Tokens are those that the batch let choose, a row each.
	Tokens  []int32
	outputs []lowering.Output
	tensors []kernels.Tensor // of the outputs; none where tokens were chosen instead
}

// Output is an output of the graph: a row per token, sequence or wanted row, in the
// order of the batch.
func (r *Results) Output(name string) (kernels.Tensor, error) {
	for i := range r.tensors {
		if r.outputs[i].Name == name {
			return r.tensors[i], nil
		}
	}
	for _, o := range r.outputs {
		if o.Name == name {
			return kernels.Tensor{}, fmt.Errorf("the step chose tokens and did not bring the output %s", name)
		}
	}
	return kernels.Tensor{}, fmt.Errorf("the graph has no output %s", name)
}
