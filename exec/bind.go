package exec

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// arenaSpaces are the regions of the arena, in their order.
var arenaSpaces = [...]lowering.Space{lowering.Fixed, lowering.PerToken, lowering.PerSeq, lowering.PerRow}

// count is how often a region of the arena repeats for the current batch.
func (e *Engine) count(s lowering.Space) int64 {
	switch s {
	case lowering.PerToken:
		return e.sizes.Tokens
	case lowering.PerSeq:
		return e.sizes.Seqs
	case lowering.PerRow:
		return e.sizes.Rows
	}
	return 1
}

// resize makes the arena large enough for a batch and binds all steps to it.
// For a batch of the same sizes as the last there is nothing to do.
func (e *Engine) resize(z graph.Sizes) {
	if e.bound && e.sizes == z {
		return
	}
	e.sizes, e.bound = z, true
	var need int64
	for _, s := range arenaSpaces {
		need += e.s.Bytes[s] * e.count(s)
	}
	if need > int64(len(e.arena)) {
		e.arena = make([]byte, need)
	}
	e.bindAll(e.steps)
}

// parallelWork is how much work, in operations and words read, makes it worth
// waking other goroutines: some tens of microseconds.
const parallelWork = 1 << 16

func (e *Engine) bindAll(steps []launch) {
	for i := range steps {
		l := &steps[i]
		l.wide = l.step.Cost.FLOPs.At(e.sizes)+l.step.Cost.Read.At(e.sizes)/4 > parallelWork
		for j, r := range l.step.Args {
			e.bind(&l.call.Args[j], r)
		}
		for j, r := range l.step.Results {
			e.bind(&l.call.Results[j], r)
		}
	}
}

// bytesOf is the memory of a buffer for the current batch.
func (e *Engine) bytesOf(id int) []byte {
	b := &e.s.Buffers[id]
	if e.memory[id] != nil {
		return e.memory[id]
	}
	var base int64
	for _, s := range arenaSpaces {
		n := e.count(s)
		if s == b.Space {
			at := base + b.Offset*n
			return e.arena[at : at+b.Bytes*n]
		}
		base += e.s.Bytes[s] * n
	}
	return nil // an input that has not been given yet
}

// bind lets t be what r means for the current batch.
func (e *Engine) bind(t *kernels.Tensor, r lowering.Ref) {
	b := &e.s.Buffers[r.Buffer]
	*t = kernels.Tensor{DType: b.Value.Type.DType, Cols: 1, Stride: r.Stride}
	for i := range t.Dims {
		t.Dims[i] = 1
		if i >= len(r.Dims) {
			continue
		}
		if d := r.Dims[i]; d.Sym != 0 {
			t.Dims[i] = int(e.sizes.Of(d.Sym))
		} else {
			t.Dims[i] = d.Len()
		}
		if i > 0 {
			t.Cols *= t.Dims[i]
		}
	}
	if b.Space == lowering.State {
		t.Dims[0] = len(e.slots.state)
	}
	data := e.bytesOf(r.Buffer)
	switch t.DType {
	case graph.F32:
		t.F32 = view[float32](data)
		t.F32 = t.F32[min(r.Offset, len(t.F32)):]
	case graph.F16, graph.BF16:
		t.U16 = view[uint16](data)
		t.U16 = t.U16[min(r.Offset, len(t.U16)):]
	case graph.I32:
		t.I32 = view[int32](data)
	}
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
