// Package place works out where the tensors of a schedule lie for a batch.
// Devices share it.
package place

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Operand is a tensor of a step, without its memory.
type Operand struct {
	kernels.Tensor
	Buffer, Offset int       // of the schedule; elements from its beginning
	sym            graph.Sym // the size of the first axis, 0 when it is fixed
	slots          bool      // it has a row per slot
	cache          bool      // it has a row per slot and token
}

// NewOperand is what is the same for every batch.
func NewOperand(s *lowering.Schedule, ref lowering.Ref) Operand {
	space := s.Buffers[ref.Buffer].Space
	o := Operand{Buffer: ref.Buffer, Offset: ref.Offset, slots: space == lowering.State || space == lowering.Cache, cache: space == lowering.Cache}
	o.DType, o.Cols, o.Stride = ref.Type.DType, 1, ref.Stride
	o.Axis = len(ref.Type.Dims) - 1
	if ref.Type.Layout.Kind == graph.Sharded {
		o.Axis, o.Runs = ref.Type.Layout.Axis, ref.Type.Extents(s.Ranks, s.Rank)
	}
	if o.Axis >= 0 {
		o.Full, o.Unit = ref.Type.Dims[o.Axis].Len(), 1
		if f := ref.Type.Dims[o.Axis].Fields; len(f) > 0 {
			o.Unit = f[0].Grain()
		}
	}
	local := s.Local(ref.Type).Dims
	for i := range o.Dims {
		o.Dims[i] = 1
		if i < len(local) {
			o.Dims[i] = local[i].Len()
		}
		if i > 1 || i > 0 && !o.cache {
			o.Cols *= o.Dims[i]
		}
	}
	if len(local) > 0 {
		o.sym = local[0].Sym
	}
	return o
}

// Resize gives the first axis its size for a batch, and a cache its room per slot.
func (o *Operand) Resize(z graph.Sizes, slots, room int) {
	switch {
	case o.cache:
		o.Dims[0], o.Dims[1] = slots, room
	case o.slots:
		o.Dims[0] = slots
	case o.sym != 0:
		o.Dims[0] = int(z.Of(o.sym))
	}
}
