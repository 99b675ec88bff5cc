package exec

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Results are the outputs of a step, valid until the engine's next step, or Close.
type Results struct {
	Tokens  []int32 // chosen by the batch's Choices, one per row
	outputs []lowering.Output
	present lowering.OutputMask
	tensors []kernels.Tensor
}

// Output returns an output of the graph: a row per token, sequence or selected row, in the order of
// the batch.
func (r *Results) Output(name string) (kernels.Tensor, error) {
	t, _, err := r.OutputOf(name)
	return t, err
}

// OutputOf is Output, and the symbol of the first axis: [graph.Tokens], [graph.Rows], [graph.Seqs],
// …, 0 where the first axis has a fixed size.
func (r *Results) OutputOf(name string) (t kernels.Tensor, axis graph.Sym, err error) {
	i := slices.IndexFunc(r.outputs, func(o lowering.Output) bool { return o.Name == name })
	switch {
	case i < 0:
		return t, 0, fmt.Errorf("the graph has no output %s", name)
	case !r.present[i]:
		return t, 0, fmt.Errorf("the batch left out the output %s; name it in Batch.Outputs", name)
	}
	if d := r.outputs[i].Ref.Type.Dims; len(d) > 0 {
		axis = d[0].Sym
	}
	return r.tensors[i], axis, nil
}

// outputIndex is the index of an output in the schedules' lists, or -1.
func (p *phase) outputIndex(name string) int {
	return slices.IndexFunc(p.outputs(), func(o lowering.Output) bool { return o.Name == name })
}

// selectOutputs selects the outputs of a batch: those that it names, its tokens, or all but tokens,
// and those that Verify checks.
func (p *part) selectOutputs(b *Batch) error {
	w, tokens := p.work.Outputs, p.outputIndex(graph.ChosenOutput)
	all := b.Outputs == nil && b.Choices == nil || p.verify != nil
	for i := range w {
		w[i] = all && i != tokens || i == tokens && b.Choices != nil
	}
	if b.picks() {
		w[p.outputIndex(LogitsOutput)] = true
	}
	for _, name := range b.Outputs {
		i := p.outputIndex(name)
		if i < 0 {
			return fmt.Errorf("the graph has no output %s", name)
		}
		w[i] = true
	}
	return nil
}
