package cuda

import (
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
}

// newCalls works out what is the same for every batch.
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

// bind gives the calls of a program their tensors, where memory is now. They are valid
// until the next.
func (r *rank) bind(key programKey) (list []*call) {
	all := r.calls
	if key.once {
		all = r.once
	}
	for _, c := range all {
		if r.runs(key, c.step.For) {
			list = append(list, c)
		}
	}
	options := kernels.Options{Math: r.machine.device.Math, Shared: r.gpu.ctx.Device().SharedMax}
	batch := key.batch()
	for _, c := range list {
		c.on = kernels.Call{Args: c.on.Args, Results: c.on.Results, Attrs: c.step.Attrs, Options: options}
		for i := range c.args {
			c.on.Args[i] = r.tensor(&c.args[i], batch)
		}
		for i := range c.results {
			c.on.Results[i] = r.tensor(&c.results[i], batch)
		}
	}
	return list
}

// tensor is where a tensor lies for a batch.
func (r *rank) tensor(o *operand.Operand, batch *graph.Batch) kernels.Tensor {
	o.Resize(batch, r.machine.slots, r.machine.tokens())
	b := &r.s.Buffers[o.Buffer]
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
	return kernels.Tensor{Tensor: o.Tensor, Ptr: uint64(base) + uint64(o.Offset*o.DType.Bytes())}
}

// kernel is the kernel of a launch.
func (c *call) kernel() kernels.Kernel {
	k, ok := kernels.Kernels[c.step.Op.Name]
	if !ok {
		panic("BUG: CUDA has no kernel for " + c.step.Op.Name)
	}
	return k
}
