package exec

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/krait-ml/krait/exec/internal/place"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// feed is an input of one rank: the host's memory, or a copy of what the rank
// holds of it.
type feed struct {
	buffer int
	in     *Input
	part   *graph.Pieces // nil: all of it
	cols   int           // elements of a row of the whole
	stride int           // of what the rank holds
}

// The inputs that every batch has are made from its sequences.
var fills = map[string]func(*Batch, *Input) error{"ids": fillIDs, "seg": fillSegments, "rows": fillRows, "past": fillPast}

// findInputs lists the inputs, and the bounds that tables set on ids.
func (e *Engine) findInputs() error {
	for _, sch := range e.schedules {
		for _, b := range sch.Buffers {
			if b.Space != lowering.Input {
				continue
			}
			if in := inputNamed(e.inputs, b.Name); in != nil {
				if !in.Type.Equal(b.Type) {
					return fmt.Errorf("input %s is %s on rank %d and %s on another", b.Name, b.Type, sch.Rank, in.Type)
				}
				continue
			}
			fill := fills[b.Name]
			if fill == nil {
				fill = given
			}
			e.inputs = append(e.inputs, &Input{Name: b.Name, Type: b.Type, fill: fill})
		}
		for i := range sch.Steps {
			if st := &sch.Steps[i]; st.Op != nil && st.Op.Name == "embedding" {
				if in := inputNamed(e.inputs, st.Args[0].Name); in != nil {
					if rows := st.Args[1].Type.Dims[0].Len(); in.limit == 0 || rows < in.limit {
						in.limit = rows
					}
				}
			}
		}
	}
	return nil
}

// inputNamed finds an input, or nil.
func inputNamed(list []*Input, name string) *Input {
	i := slices.IndexFunc(list, func(in *Input) bool { return in.Name == name })
	if i < 0 {
		return nil
	}
	return list[i]
}

func newFeed(s *lowering.Schedule, buffer int, in *Input) feed {
	f := feed{buffer: buffer, in: in}
	if in.Type.Layout.Kind == graph.Sharded {
		part := graph.PiecesOf(in.Type, s.Ranks, s.Rank)
		f.part, f.cols, f.stride = &part, graph.RowElems(in.Type.Dims), graph.RowElems(s.Local(in.Type).Dims)
	}
	return f
}

// feed fills the inputs; their memory only grows, so that decoding allocates
// nothing.
func (e *Engine) feed(b *Batch, z graph.Sizes) error {
	for _, in := range e.inputs {
		n := int64(in.Type.DType.Bytes())
		for _, d := range in.Type.Dims {
			if d.Sym != 0 {
				n *= z.Of(d.Sym)
			} else {
				n *= int64(d.Len())
			}
		}
		if int64(cap(in.Data)) < n {
			in.Data = make([]byte, n, 2*n)
		}
		in.Data = in.Data[:n]
		if err := in.fill(b, in); err != nil {
			return err
		}
	}
	return nil
}

// feed takes an input from the host.
func (r *rank) feed(f *feed) {
	data := f.in.Data
	if f.part != nil {
		data = f.cut(r.memory[f.buffer])
	}
	if old := r.memory[f.buffer]; len(old) != len(data) || unsafe.SliceData(old) != unsafe.SliceData(data) {
		r.memory[f.buffer], r.bound = data, false
	}
}

// cut copies what the rank holds, into old where that is large enough.
func (f *feed) cut(old []byte) []byte {
	size := f.in.Type.DType.Bytes()
	rows := len(f.in.Data) / max(1, f.cols*size)
	n := rows * f.stride * size
	if f.part.Rows {
		n = 0
		for _, x := range f.part.List {
			n += x.N * f.stride * size
		}
	}
	if cap(old) < n {
		old = make([]byte, n)
	}
	f.part.Cut(old[:n], f.in.Data, f.cols, f.stride, size)
	return old[:n]
}

// given copies an input of the caller.
func given(b *Batch, in *Input) error {
	name, d, data := in.Name, in.Type.DType, in.Data
	a, ok := b.Inputs[name]
	switch {
	case !ok:
		return fmt.Errorf("input %s is not given", name)
	case a.DType != d:
		return fmt.Errorf("input %s is %s, the graph wants %s", name, a.DType, d)
	case len(a.Data) != len(data):
		return fmt.Errorf("input %s has shape %v and %d bytes, the graph wants %d for this batch", name, a.Shape, len(a.Data), len(data))
	case !in.fits(a.Shape):
		return fmt.Errorf("input %s has shape %v, the graph wants %s", name, a.Shape, in.Type)
	}
	copy(data, a.Data)
	return nil
}

// fits compares a shape with the type's; the number of bytes tells the symbols. A
// single row may be given without its first axis.
func (in *Input) fits(shape []int) bool {
	dims := in.Type.Dims
	if len(shape) == len(dims)-1 && dims[0].Sym != 0 {
		dims = dims[1:]
	}
	if len(shape) != len(dims) {
		return false
	}
	for i, d := range dims {
		if d.Sym == 0 && d.Len() != shape[i] {
			return false
		}
	}
	return true
}

func fillIDs(b *Batch, in *Input) error {
	ids := place.View[int32](in.Data)
	at := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if q.Tokens == nil {
			return fmt.Errorf("sequence %d: the graph reads token ids and none are given", i)
		}
		for j, id := range q.Tokens {
			if id < 0 || in.limit > 0 && id >= in.limit {
				return fmt.Errorf("sequence %d: token %d is %d; ids go from 0 to %d", i, j, id, in.limit-1)
			}
			ids[at] = int32(id)
			at++
		}
	}
	return nil
}

func fillSegments(b *Batch, in *Input) error {
	seg := place.View[int32](in.Data)
	start := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		seg[3*i], seg[3*i+1], seg[3*i+2] = int32(start), int32(q.len()), int32(q.index)
		start += q.len()
	}
	return nil
}

func fillPast(b *Batch, in *Input) error {
	past := place.View[int32](in.Data)
	for i := range b.Sequences {
		past[i] = int32(b.Sequences[i].past)
	}
	return nil
}

func fillRows(b *Batch, in *Input) error {
	rows := place.View[int32](in.Data)
	start, at := 0, 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if q.Rows == nil {
			rows[at] = int32(start + q.len() - 1)
			at++
		}
		for _, r := range q.Rows {
			rows[at] = int32(start + r)
			at++
		}
		start += q.len()
	}
	return nil
}
