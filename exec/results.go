package exec

import (
	"context"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Results are what a step gave, valid until the engine's next step, or Close.
type Results struct {
	// Tokens are those that the batch let choose, a row each.
	Tokens  []int32
	outputs []lowering.Output
	wanted  lowering.Wanted
	tensors []kernels.Tensor // of the outputs that were wanted
}

// Output is an output of the graph: a row per token, sequence or wanted row, in the
// order of the batch.
func (r *Results) Output(name string) (kernels.Tensor, error) {
	for i, o := range r.outputs {
		switch {
		case o.Name != name:
		case !r.wanted[i]:
			return kernels.Tensor{}, fmt.Errorf("the batch did not want the output %s", name)
		default:
			return r.tensors[i], nil
		}
	}
	return kernels.Tensor{}, fmt.Errorf("the graph has no output %s", name)
}

// OutputOf is Output, and of what there is a row: [graph.Tokens], [graph.Rows], [graph.Seqs], …,
// 0 where the first axis is a fixed size.
func (r *Results) OutputOf(name string) (kernels.Tensor, graph.Sym, error) {
	t, err := r.Output(name)
	if err != nil {
		return t, 0, err
	}
	i := slices.IndexFunc(r.outputs, func(o lowering.Output) bool { return o.Name == name })
	if d := r.outputs[i].Ref.Type.Dims; len(d) > 0 {
		return t, d[0].Sym, nil
	}
	return t, 0, nil
}

// outputNamed is the place of an output in the schedules' lists, or -1.
func (e *Engine) outputNamed(name string) int {
	return slices.IndexFunc(e.schedules[0].Outputs, func(o lowering.Output) bool { return o.Name == name })
}

// want says which outputs a batch wants: those that it names, the tokens that it
// chooses, or all but tokens; and what is to be verified.
func (e *Engine) want(b *Batch) error {
	w, tokens := e.work.Wanted, e.outputNamed(graph.ChosenOutput)
	all := b.Want == nil && b.Choose == nil || e.verify != nil
	for i := range w {
		w[i] = all && i != tokens || i == tokens && b.Choose != nil
	}
	if b.picks() {
		w[e.outputNamed(LogitsOutput)] = true
	}
	for _, name := range b.Want {
		i := e.outputNamed(name)
		if i < 0 {
			return fmt.Errorf("the graph has no output %s", name)
		}
		w[i] = true
	}
	return nil
}

// run runs a batch that is prepared, and lets who wants to look at its results.
func (e *Engine) run(ctx context.Context, b *Batch) (Results, error) {
	out := Results{outputs: e.schedules[0].Outputs, wanted: e.work.Wanted} // all ranks have the same
	if e.batches != nil {
		e.batches(&e.work)
	}
	var err error
	out.tensors, err = e.machine.Step(ctx, &e.work)
	if err == nil && e.intact != nil {
		err = e.intact()
	}
	if err == nil && e.verify != nil {
		err = e.verify(out)
	}
	if err == nil && b.Choose != nil {
		err = out.chosen(b)
	}
	return out, err
}
