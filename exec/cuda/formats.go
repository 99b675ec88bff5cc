package cuda

import (
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// chooseFormats decides which buffers of activations a program has in bf16: with products of bf16
// those that all its kernels read and write so. They take half of the room that is planned. Collectives, relayouts
// and outputs have f32. It goes by the program, as other sizes have other kernels; what a step leaves to the
// next is in no such buffer.
func (r *rank) chooseFormats(key programKey) {
	r.inBF16 = nil
	if r.machine.device.Math != kernels.BF16 || key.once {
		return
	}
	r.inBF16 = make([]bool, len(r.s.Buffers))
	for i := range r.s.Buffers {
		b := &r.s.Buffers[i]
		r.inBF16[i] = operand.InArena(b) && b.Type.DType == graph.F32
	}
	for i := range r.outputs {
		r.inBF16[r.outputs[i].Buffer] = false
	}
	for again := true; again; { // fewer in bf16 may be fewer that are accepted
		again = false
		_ = r.eachAsIs(key, func(c *call) error {
			again = r.refused(c) || again
			return nil
		})
	}
}

// refused puts what a call does not accept in bf16 into f32, and reports whether there was some.
func (r *rank) refused(c *call) (some bool) {
	operands := append(append([]operand.Operand(nil), c.args...), c.results...)
	accepted := make([]bool, len(operands))
	if c.step.Kind == lowering.Launch {
		accepted = c.kernel().Accepts(&c.on)
	}
	for i, ok := range accepted {
		if b := operands[i].Buffer; r.inBF16[b] && !ok {
			r.inBF16[b], some = false, true
		}
	}
	return some
}
