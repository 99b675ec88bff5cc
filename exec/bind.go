package exec

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// operand is a tensor of a step: what is the same for every batch, and where the
// memory of the current one is.
type operand struct {
	kernels.Tensor
	buffer, offset int
	sym            graph.Sym // the size of the first axis, 0 when it is fixed
	slots          bool      // it has a row per slot
	cache          bool      // it has a row per slot and token
}

func newOperand(s *lowering.Schedule, ref lowering.Ref) operand {
	space := s.Buffers[ref.Buffer].Space
	o := operand{buffer: ref.Buffer, offset: ref.Offset, slots: space == lowering.State || space == lowering.Cache, cache: space == lowering.Cache}
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

// bind lets o be what it means for the current batch.
func (r *rank) bind(o *operand) {
	switch {
	case o.cache:
		o.Dims[0], o.Dims[1] = r.slots, r.context
	case o.slots:
		o.Dims[0] = r.slots
	case o.sym != 0:
		o.Dims[0] = int(r.sizes.Of(o.sym))
	}
	data := r.bytesOf(o.buffer)
	switch o.DType {
	case graph.F32:
		o.F32 = view[float32](data)
		o.F32 = o.F32[min(o.offset, len(o.F32)):]
	case graph.F16, graph.BF16:
		o.U16 = view[uint16](data)
		o.U16 = o.U16[min(o.offset, len(o.U16)):]
	case graph.I32:
		o.I32 = view[int32](data)
		o.I32 = o.I32[min(o.offset, len(o.I32)):]
	}
}

// parallelWork is how much work, in operations and words read, makes it worth
// waking other goroutines: some tens of microseconds.
const parallelWork = 1 << 16

// bindAll binds the operands of steps.
func (r *rank) bindAll(steps []step) {
	for i := range steps {
		st := &steps[i]
		work := st.Cost.FLOPs.At(r.sizes) + st.Cost.Read.At(r.sizes)/4
		st.wide = work/int64(r.s.Ranks) > parallelWork
		for j := range st.args {
			r.bind(&st.args[j])
			st.call.Args[j] = st.args[j].Tensor
		}
		for j := range st.results {
			r.bind(&st.results[j])
			st.call.Results[j] = st.results[j].Tensor
		}
	}
}

// arenaSpaces are the regions of the arena, in their order.
var arenaSpaces = [...]lowering.Space{lowering.Fixed, lowering.PerToken, lowering.PerSeq, lowering.PerRow}

// count is how often a region of the arena repeats for the current batch.
func (r *rank) count(s lowering.Space) int64 {
	switch s {
	case lowering.PerToken:
		return r.sizes.Tokens
	case lowering.PerSeq:
		return r.sizes.Seqs
	case lowering.PerRow:
		return r.sizes.Rows
	}
	return 1
}

// prepare takes the inputs, makes the arena large enough for the batch, and
// binds the steps. For a batch of the same sizes as the last there is little to do.
func (r *rank) prepare(t turn, steps []step) {
	if t.init {
		r.bindAll(steps)
		return
	}
	for i := range r.feeds {
		r.feed(&r.feeds[i])
	}
	if r.bound && r.sizes == t.sizes {
		return
	}
	r.sizes, r.bound = t.sizes, true
	var need int64
	for _, s := range arenaSpaces {
		need += r.s.Bytes[s] * r.count(s)
	}
	if need > int64(len(r.arena)) {
		r.arena = make([]byte, need)
	}
	r.bindAll(steps)
}

// bytesOf is the memory of a buffer for the current batch.
func (r *rank) bytesOf(id int) []byte {
	b := &r.s.Buffers[id]
	if b.Space < lowering.PerToken {
		return r.memory[id]
	}
	var base int64
	for _, s := range arenaSpaces {
		if s == b.Space {
			break
		}
		base += r.s.Bytes[s] * r.count(s)
	}
	n := r.count(b.Space)
	at := base + b.Offset*n
	if at+b.Bytes*n > int64(len(r.arena)) {
		return nil // no batch has been run yet
	}
	return r.arena[at : at+b.Bytes*n]
}

// view looks at bytes as numbers of the machine, which is little-endian.
func view[T float32 | uint16 | int32](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// aligned returns data at an address that its elements may have: the same
// memory where it already is, as in files whose header is padded.
func aligned(data []byte, size int) []byte {
	if len(data) == 0 || uintptr(unsafe.Pointer(&data[0]))%uintptr(size) == 0 {
		return data
	}
	out := make([]byte, len(data))
	copy(out, data)
	return out
}
