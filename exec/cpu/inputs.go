package cpu

import (
	"unsafe"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// input is an input of one rank: the host's memory, or a copy of what the rank holds of it.
type input struct {
	name   string
	serves []int // the outputs that need it; nil: all ranks do
	buffer int
	part   *graph.Pieces // nil: all of it
	cols   int           // elements of a row of the whole
	stride int           // of what the rank holds
}

func newInput(s *lowering.Schedule, buffer int) input {
	b := &s.Buffers[buffer]
	in := input{name: b.Name, serves: b.For, buffer: buffer}
	if b.Type.Layout.Kind == graph.Sharded {
		part := graph.PiecesOf(s.Share(b.Type))
		in.part, in.cols, in.stride = &part, graph.RowElems(b.Type.Dims), graph.RowElems(s.Local(b.Type).Dims)
	}
	return in
}

// take takes an input from the host.
func (r *rank) take(in *input, from *exec.Input) {
	data := from.Data
	if in.part != nil {
		data = in.cut(from, r.memory[in.buffer])
	}
	if old := r.memory[in.buffer]; len(old) != len(data) || unsafe.SliceData(old) != unsafe.SliceData(data) {
		r.memory[in.buffer], r.bound = data, false
	}
}

// cut copies what the rank holds, into old where that is large enough.
func (in *input) cut(from *exec.Input, old []byte) []byte {
	size := from.Type.DType.Bytes()
	rows := len(from.Data) / max(1, in.cols*size)
	n := rows * in.stride * size
	if in.part.Rows {
		n = 0
		for _, x := range in.part.List {
			n += x.N * in.stride * size
		}
	}
	if cap(old) < n {
		old = make([]byte, n)
	}
	in.part.Cut(old[:n], from.Data, in.cols, in.stride, size)
	return old[:n]
}
