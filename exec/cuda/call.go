package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// call is a step with its tensors, as they were bound last.
type call struct {
	step          *lowering.Step
	args, results []operand.Operand
	on            kernels.Call
	batch         *graph.Batch
	rows          *graph.Run // of the batch's tokens; nil: all
}

// newCalls makes the calls of steps, as far as they are the same for every batch.
func newCalls(s *lowering.Schedule, steps []lowering.Step) []*call {
	var list []*call
	for i := range steps {
		c := &call{step: &steps[i]}
		for _, ref := range c.step.Args {
			c.args = append(c.args, operand.New(s, ref))
		}
		for _, ref := range c.step.Results {
			c.results = append(c.results, operand.New(s, ref))
		}
		c.on.Args, c.on.Results = make([]kernels.Tensor, len(c.args)), make([]kernels.Tensor, len(c.results))
		list = append(list, c)
	}
	return list
}

// each visits the calls of a program in the order of issue, those of loops once for each piece of
// the batch. Their tensors point into the memory that is reserved now, and are valid until the next
// call.
func (r *rank) each(key programKey, visit func(c *call) error) error {
	r.applyFormats(key)
	return r.eachAsIs(key, visit)
}

// eachAsIs is each in the formats that were applied last.
func (r *rank) eachAsIs(key programKey, visit func(c *call) error) error {
	if key.trial.replay {
		return r.eachReplayed(key, visit)
	}
	all, steps := r.calls, r.s.Steps
	if key.once {
		all, steps = r.once, r.s.Init
	}
	batch := key.batch()
	for i, end := 0, 0; i < len(all); i = end {
		end = lowering.LoopEnd(steps, i)
		if steps[i].Loop == 0 {
			if err := r.visit(key, all[i], batch, nil, visit); err != nil {
				return err
			}
			continue
		}
		for k := range r.s.PieceCount(int(key.z.Tokens)) {
			rows := r.s.Piece(int(key.z.Tokens), k)
			for _, c := range all[i:end] {
				if err := r.visit(key, c, batch, &rows, visit); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// visit binds the tensors of a call and visits it, if the program includes it.
func (r *rank) visit(key programKey, c *call, batch *graph.Batch, rows *graph.Run, visit func(c *call) error) error {
	if !r.runs(key, c.step.For) {
		return nil
	}
	c.batch, c.rows = batch, rows
	on := r.gpu.ctx.Device()
	c.on = kernels.Call{Args: c.on.Args, Results: c.on.Results, Attrs: c.step.Attrs,
		Options: kernels.Options{Math: r.machine.device.Math, Library: r.byLibrary(c.step), Shared: on.SharedMax,
			Invariant: r.machine.device.BatchInvariant, Split: kernels.SplitPays(on.Capability[0], on.Capability[1])}}
	for i := range c.args {
		c.on.Args[i] = r.tensor(&c.args[i], batch, rows)
	}
	for i := range c.results {
		c.on.Results[i] = r.tensor(&c.results[i], batch, rows)
	}
	if err := visit(c); err != nil {
		return fmt.Errorf("%s: %w", c.step.Name, err)
	}
	return nil
}

// parts returns, by rank, the part of a tensor that it holds in the rows of a call.
func (c *call) parts(t graph.Type, ranks int) []graph.Pieces {
	var out []graph.Pieces
	for i := range ranks {
		if c.rows != nil && t.Layout.ByBatch() {
			out = append(out, graph.PiecesWithin(c.batch, t, ranks, i, *c.rows))
		} else {
			out = append(out, graph.PiecesIn(c.batch, t, ranks, i))
		}
	}
	return out
}

// tensor binds an operand to memory for a batch, or for some of its rows.
func (r *rank) tensor(o *operand.Operand, batch *graph.Batch, rows *graph.Run) kernels.Tensor {
	o.Resize(batch, r.machine.slots, r.machine.tokens())
	first := o.Offset
	if rows != nil {
		first += o.Cut(batch, *rows)
	}
	b, t := &r.s.Buffers[o.Buffer], kernels.Tensor{Tensor: o.Tensor}
	if r.narrowAt(o, batch.Sizes) {
		(&kernels.Options{Math: r.machine.device.Math}).Narrow(&t, true)
	}
	if b.Space == lowering.Cache {
		t, table := r.cache(o, batch.Sizes)
		return kernels.Tensor{Tensor: t, Ptr: uint64(table)}
	}
	base := r.memory[o.Buffer]
	switch {
	case operand.InArena(b):
		at, _ := operand.At(r.s, b, batch.Sizes)
		base = r.arena.ptr + driver.Ptr(at)
	case b.Space == lowering.State:
		base = r.states + driver.Ptr(b.Offset)
	case b.Space == lowering.Input:
		base = r.inputs.ptr + driver.Ptr(r.inputAt(o.Buffer, batch.Sizes))
	}
	t.Ptr, t.Fixed = uint64(base)+uint64(kernels.BytesBefore(&t.Tensor, first)), b.Space == lowering.Param
	return t
}

// kernel returns the kernel of a launch that [hasKernel].
func (c *call) kernel() kernels.Kernel { return kernels.Kernels[c.step.Op.Name] }
