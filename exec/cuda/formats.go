package cuda

import (
	"slices"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// Target answers for the kernels which activations they take in bf16; nil where they take none:
// with math of f32, without cuBLAS, or if batch-invariant. Of several GPUs, that with the least
// shared memory decides.
func (d *Device) Target() passes.Target {
	if d.Math != kernels.BF16 || d.NoGEMM || d.BatchInvariant {
		return nil
	}
	t := &kernels.Target{}
	devices, _ := d.Driver.Devices() // Open gives the error
	for _, x := range devices {
		if t.Shared == 0 || x.SharedMax < t.Shared {
			t.Shared = x.SharedMax
		}
	}
	return t
}

// applyFormats lets buffers lie in bf16 where the compiler decided so for batches of such sizes. It
// checks that the kernels of this program accept that, and otherwise has all in f32: without
// cuBLAS, or on a GPU with less shared memory than the compiler was told of.
func (r *rank) applyFormats(key programKey) {
	r.inBF16 = nil
	if d := r.machine.device; d.Math != kernels.BF16 || d.BatchInvariant || key.once || key.trial != (trialKey{}) {
		return
	}
	in := make([]bool, len(r.s.Buffers))
	for i := range r.s.Buffers {
		b := &r.s.Buffers[i]
		if _, bytes := operand.At(r.s, b, key.z); b.Narrow != graph.NarrowNever && operand.InArena(b) && b.Bytes > 0 {
			in[i] = b.Narrow.In(bytes/b.Bytes, key.z)
		}
	}
	r.inBF16 = in
	_ = r.eachAsIs(key, func(c *call) error {
		if r.refuses(c) {
			in = nil
		}
		return nil
	})
	r.inBF16 = in
}

// refuses reports whether a call does not accept one of its operands or results in bf16.
func (r *rank) refuses(c *call) bool {
	operands := slices.Concat(c.args, c.results)
	if !slices.ContainsFunc(operands, func(o operand.Operand) bool { return r.inBF16[o.Buffer] }) {
		return false
	}
	if c.step.Op.Class == graph.View { // copied as it is
		return r.inBF16[operands[0].Buffer] != r.inBF16[operands[1].Buffer]
	}
	accepted := make([]bool, len(operands))
	if c.step.Kind == lowering.Launch && hasKernel(c.step) {
		accepted = c.kernel().Accepts(&c.on)
	}
	for i, o := range operands {
		if r.inBF16[o.Buffer] && !accepted[i] {
			return true
		}
	}
	return false
}
