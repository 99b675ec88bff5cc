package cpu

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// bind sizes o for the current batch, and finds its memory.
func (r *rank) bind(o *operand.Operand) {
	o.Resize(&r.batch, r.slots, 0)
	r.find(o, o.Offset)
}

// bindPiece is bind for some rows of the batch.
func (r *rank) bindPiece(o *operand.Operand, rows graph.Run) {
	o.Resize(&r.batch, r.slots, 0)
	r.find(o, o.Offset+o.Cut(&r.batch, rows))
}

// find finds the memory of o, from an element of its buffer on.
func (r *rank) find(o *operand.Operand, at int) {
	if r.s.Buffers[o.Buffer].Space == lowering.Cache {
		o.Pages, o.InPage = &r.pages, r.inPage[o.Buffer]+o.Offset*o.DType.Bytes()
		return
	}
	data := r.bytesOf(o.Buffer)
	switch o.DType {
	case graph.F32:
		o.F32 = operand.View[float32](data)
		o.F32 = o.F32[min(at, len(o.F32)):]
	case graph.F16, graph.BF16:
		o.U16 = operand.View[uint16](data)
		o.U16 = o.U16[min(at, len(o.U16)):]
	case graph.I32:
		o.I32 = operand.View[int32](data)
		o.I32 = o.I32[min(at, len(o.I32)):]
	default: // F8, rows in the blocks of a codec, or lines of weights in blocks
		if o.Blocks != nil && at > 0 {
			at = o.Blocks.Bytes(at / o.Blocks.Cols)
		}
		o.U8 = data[min(at, len(data)):]
	}
}

// bindAll binds the operands of steps, of loops for the first piece.
func (r *rank) bindAll(steps []step) {
	for i, end := 0, 0; i < len(steps); i = end {
		if end = loopEnd(steps, i); steps[i].Loop > 0 {
			r.bindLoop(steps[i:end], r.s.Piece(int(r.batch.Tokens), 0))
			continue
		}
		st := &steps[i]
		st.work = workOf(st.Cost, r.batch.Sizes) / int64(r.s.Ranks)
		st.bind(r.bind)
		r.bindWide(st, graph.Run{Len: int(r.batch.Tokens)})
		st.collective.Bind(&r.batch)
	}
	r.bindScratch(steps)
}

// bindLoop binds the operands of a loop's steps for a piece of the batch.
func (r *rank) bindLoop(steps []step, rows graph.Run) {
	z := r.batch.Sizes
	z.Tokens = int64(rows.Len)
	for i := range steps {
		st := &steps[i]
		st.work = workOf(st.Cost, z) / int64(r.s.Ranks)
		st.bind(func(o *operand.Operand) { r.bindPiece(o, rows) })
		r.bindWide(st, rows)
		st.collective.BindPiece(&r.batch, rows)
	}
	r.bindScratch(steps)
}

// bind binds the operands, and shows them to the kernel.
func (st *step) bind(operand func(*operand.Operand)) {
	for j := range st.args {
		operand(&st.args[j])
		st.call.Args[j] = st.args[j].Tensor
	}
	for j := range st.results {
		operand(&st.results[j])
		st.call.Results[j] = st.results[j].Tensor
	}
}

// bindWide tells a kernel which of its rows are in whole blocks, where the batch has some rows of
// its own.
func (r *rank) bindWide(st *step, rows graph.Run) {
	if st.Kind == lowering.Launch && len(st.args) > 0 {
		st.call.Wide = st.args[0].Wide(st.call.Wide[:0], &r.batch, r.wide, rows)
	}
}

// bindScratch gives all kernels the same scratch memory, which only grows: one runs at a time.
func (r *rank) bindScratch(steps []step) {
	need := 0
	for i := range steps {
		if st := &steps[i]; st.kernel.Scratch != nil {
			need = max(need, st.kernel.Scratch(&st.call))
		}
	}
	if need > len(r.scratch) {
		r.scratch = kernels.NewScratch(need)
	}
	for i := range steps {
		steps[i].call.Scratch = r.scratch
	}
}

// like reports whether steps bound for one batch serve another. KV caches are bound whole; their
// length only decides the number of workers.
func like(a, b graph.Sizes) bool {
	return a.Tokens == b.Tokens && a.Seqs == b.Seqs && a.Rows == b.Rows && bits.Len64(uint64(a.Cached)) == bits.Len64(uint64(b.Cached))
}

// prepare takes the inputs, makes the arena large enough for the batch, and
// binds the steps. For a batch of the same sizes as the last there is little to do.
func (r *rank) prepare(w *exec.Work) {
	for i := range r.inputs {
		if in := &r.inputs[i]; w.Runs(in.serves, r.gives) {
			r.take(in, w.Input(in.name))
		}
	}
	r.pages.Of = w.BlockTables
	r.trials.begin(w)
	if r.bound && like(r.batch.Sizes, w.Sizes) && slices.Equal(r.wide, w.Wide) && (!r.s.BySequence() || slices.Equal(r.batch.Ends, w.Ends)) {
		return
	}
	r.batch = graph.Batch{Sizes: w.Sizes, Ends: append(r.batch.Ends[:0], w.Ends...)}
	r.wide = append(r.wide[:0], w.Wide...)
	r.bound = true
	if need := operand.Arena(r.s, r.batch.Sizes); need > int64(len(r.arena)) {
		r.arena = roomy(need)
	}
	r.bindAll(r.steps)
}

// bytesOf returns the memory of a buffer for the current batch.
func (r *rank) bytesOf(id int) []byte {
	b := &r.s.Buffers[id]
	switch {
	case b.Space == lowering.State:
		return r.states[b.Offset:]
	case !operand.InArena(b):
		return r.memory[id]
	}
	at, n := operand.At(r.s, b, r.batch.Sizes)
	if at+n > int64(len(r.arena)) {
		return nil // no batch has been run yet
	}
	return r.arena[at : at+n]
}

// aligned returns data at an address that its elements may have: the same
// memory where it already is, as in files whose header is padded.
func aligned(data []byte, size int) []byte {
	if len(data) == 0 || uintptr(unsafe.Pointer(&data[0]))%uintptr(size) == 0 {
		return data
	}
	out := roomy(int64(len(data)))
	copy(out, data)
	return out
}
