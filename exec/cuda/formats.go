package cuda

import (
	"slices"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// Target answers for the kernels which activations they take in bf16, or with math of f32 in
// pieces; nil where they take none: without cuBLAS, or if batch-invariant. Of several GPUs, that
// with the least shared memory decides.
func (d *Device) Target() passes.Target {
	if d.NoGEMM || d.BatchInvariant {
		return nil
	}
	t := &kernels.Target{Math: d.Math}
	devices, _ := d.Driver.Devices() // Open gives the error
	for _, x := range devices {
		if t.Shared == 0 || x.SharedMax < t.Shared {
			t.Shared = x.SharedMax
		}
	}
	return t
}

// applyFormats lets buffers lie in bf16 or in pieces where the compiler decided so for batches of
// such sizes. It checks that the kernels of this program accept that. In pieces are those buffers
// that all accept. In bf16 are all or, without cuBLAS or on a GPU with less shared memory than the
// compiler was told of, none.
func (r *rank) applyFormats(key programKey) {
	r.narrow = nil
	d := r.machine.device
	if d.BatchInvariant || key.once || key.trial != (trialKey{}) {
		return
	}
	in := make([]bool, len(r.s.Buffers))
	for i := range r.s.Buffers {
		b := &r.s.Buffers[i]
		if _, bytes := operand.At(r.s, b, key.z); b.Narrow.InPieces() == (d.Math == kernels.F32) && operand.InArena(b) && b.Bytes > 0 {
			in[i] = b.Narrow.In(bytes/b.Bytes, key.z)
		}
	}
	if r.narrow = in; !slices.Contains(in, true) {
		return
	}
	none := false
	_ = r.eachAsIs(key, func(c *call) error {
		for _, buffer := range r.refused(c) {
			in[buffer], none = false, d.Math == kernels.BF16
		}
		return nil
	})
	if none {
		r.narrow = nil
	}
}

// narrowAt reports whether an operand is in bf16 or in pieces. Of what lies there for a piece of
// the batch, the last may have few rows.
func (r *rank) narrowAt(o *operand.Operand, z graph.Sizes) bool {
	if r.narrow == nil || !r.narrow[o.Buffer] {
		return false
	}
	always := graph.NarrowAlways
	if r.machine.device.Math == kernels.F32 {
		always = graph.PiecesAlways
	}
	return !r.s.Buffers[o.Buffer].Space.OfPiece() || always.In(int64(o.Tensor.Rows()), z)
}

// refused lists the buffers of a call's operands and results that it does not accept as they are
// in bf16 or in pieces.
func (r *rank) refused(c *call) (list []int) {
	operands := slices.Concat(c.args, c.results)
	values := slices.Concat(c.on.Args, c.on.Results)
	is := func(i int) bool {
		return values[i].InPieces || values[i].DType == graph.BF16 && r.narrow[operands[i].Buffer]
	}
	accepted := make([]bool, len(operands))
	switch {
	case !slices.ContainsFunc(operands, func(o operand.Operand) bool { return r.narrow[o.Buffer] }):
		return nil
	case c.step.Op.Class == graph.View: // copied as it is
		accepted[0] = is(0) && is(1) && !values[0].InPieces
		accepted[1] = accepted[0]
	case c.step.Kind == lowering.Launch && hasKernel(c.step):
		accepted = c.kernel().Accepts(&c.on)
	}
	for i, o := range operands {
		// A part of the rows of pieces is not where all rows are.
		part := c.rows != nil && values[i].InPieces && !r.s.Buffers[o.Buffer].Space.OfPiece()
		if is(i) && (!accepted[i] || part) {
			list = append(list, o.Buffer)
		}
	}
	return list
}
