package exec

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// source is where a batch's input comes from.
type source struct {
	fill   func(b *Batch, in *Input, limit int) error
	limit  int   // ids must be below it, unless it is 0
	serves []int // the outputs that it is there for; nil: always
}

// The inputs that every batch has are made from its sequences.
var fills = map[string]func(*Batch, *Input, int) error{"ids": fillIDs, "seg": fillSegments, "rows": fillRows, "past": fillPast,
	graph.ChoiceInput: fillChoice, graph.SeenInput: fillSeen}

// findInputs lists the inputs, and the bounds that tables set on ids.
func (e *Engine) findInputs() error {
	for _, sch := range e.schedules {
		for _, b := range sch.Buffers {
			if b.Space != lowering.Input {
				continue
			}
			if i := e.inputNamed(b.Name); i >= 0 {
				if t := e.work.Inputs[i].Type; !t.Equal(b.Type) {
					return fmt.Errorf("input %s is %s on rank %d and %s on another", b.Name, b.Type, sch.Rank, t)
				}
				if b.For == nil {
					e.sources[i].serves = nil
				}
				continue
			}
			fill := fills[b.Name]
			if fill == nil {
				fill = given
			}
			e.work.Inputs = append(e.work.Inputs, Input{Name: b.Name, Type: b.Type})
			e.sources = append(e.sources, source{fill: fill, serves: b.For})
		}
		e.boundIDs(sch)
	}
	return nil
}

// boundIDs keeps the ids that look up rows of a table below their number.
func (e *Engine) boundIDs(s *lowering.Schedule) {
	for i := range s.Steps {
		st := &s.Steps[i]
		if st.Op == nil || st.Op.Name != "embedding" {
			continue
		}
		if k := e.inputNamed(st.Args[0].Name); k >= 0 {
			if rows := st.Args[1].Type.Dims[0].Len(); e.sources[k].limit == 0 || rows < e.sources[k].limit {
				e.sources[k].limit = rows
			}
		}
	}
}

// inputNamed is the place of an input in the list, or -1.
func (e *Engine) inputNamed(name string) int {
	return slices.IndexFunc(e.work.Inputs, func(in Input) bool { return in.Name == name })
}

// fill fills the inputs; their memory only grows, so that decoding allocates
// nothing.
func (e *Engine) fill(b *Batch, z graph.Batch) error {
	e.work.Batch = z
	for i := range e.work.Inputs {
		in, from := &e.work.Inputs[i], &e.sources[i]
		if !e.work.Runs(from.serves, true) {
			continue
		}
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
		if err := from.fill(b, in, from.limit); err != nil {
			return err
		}
	}
	return nil
}

// given copies an input of the caller.
func given(b *Batch, in *Input, _ int) error {
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

func fillIDs(b *Batch, in *Input, limit int) error {
	ids := operand.View[int32](in.Data)
	at := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if q.Tokens == nil {
			return fmt.Errorf("sequence %d: the graph reads token ids and none are given", i)
		}
		for j, id := range q.Tokens {
			if id < 0 || limit > 0 && id >= limit {
				return fmt.Errorf("sequence %d: token %d is %d; ids go from 0 to %d", i, j, id, limit-1)
			}
			ids[at] = int32(id)
			at++
		}
	}
	return nil
}

func fillSegments(b *Batch, in *Input, _ int) error {
	seg := operand.View[int32](in.Data)
	start := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		seg[3*i], seg[3*i+1], seg[3*i+2] = int32(start), int32(q.len()), int32(q.index)
		start += q.len()
	}
	return nil
}

func fillPast(b *Batch, in *Input, _ int) error {
	past := operand.View[int32](in.Data)
	for i := range b.Sequences {
		past[i] = int32(b.Sequences[i].past)
	}
	return nil
}

func fillRows(b *Batch, in *Input, _ int) error {
	rows := operand.View[int32](in.Data)
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
