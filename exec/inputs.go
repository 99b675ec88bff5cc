package exec

import (
	"fmt"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
)

// source fills an input of a batch.
type source struct {
	fill  func(b *Batch, in *Input, limit int) error
	limit int // ids must be below it, unless it is 0
}

// fills has the inputs that are made from a batch's sequences.
var fills = map[string]func(*Batch, *Input, int) error{"ids": fillIDs, "seg": fillSegments, "rows": fillRows, "past": fillPast,
	graph.ChoiceInput: fillChoice, graph.SeenInput: fillSeen}

// findInputs lists the inputs, and the bounds that embedding tables set on ids.
func (p *phase) findInputs() (err error) {
	if p.inputs, err = Inputs(p.schedules); err != nil {
		return err
	}
	for i := range p.inputs {
		fill := fills[p.inputs[i].Name]
		if fill == nil {
			fill = fillGiven
		}
		p.sources = append(p.sources, source{fill: fill})
	}
	for _, s := range p.schedules {
		for i := range s.Steps {
			if st := &s.Steps[i]; st.Op != nil && st.Op.Name == "embedding" {
				p.limitIDs(st.Args[0].Name, st.Args[1].Type.Dims[0].Len())
			}
		}
	}
	return nil
}

// limitIDs keeps the ids of an input below the number of rows of a table.
func (p *phase) limitIDs(input string, rows int) {
	for i := range p.sources {
		if from := &p.sources[i]; p.inputs[i].Name == input && (from.limit == 0 || rows < from.limit) {
			from.limit = rows
		}
	}
}

// fill fills the inputs. Their memory only grows, so decoding allocates nothing.
func (p *part) fill(b *Batch, z graph.Batch) error {
	p.work.Batch = z
	for i := range p.work.Inputs {
		in, from := &p.work.Inputs[i], &p.sources[i]
		if !p.work.Runs(in.For, true) {
			continue
		}
		n := int64(in.Type.DType.Bytes())
		for _, d := range in.Type.Dims {
			if d.Sym != 0 {
				n *= int64(d.At(z.Sizes))
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

// fillGiven copies an input from the batch's Inputs.
func fillGiven(b *Batch, in *Input, _ int) error {
	name, d, data := in.Name, in.Type.DType, in.Data
	a, ok := b.Inputs[name]
	switch {
	case !ok:
		return fmt.Errorf("input %s is missing in the batch", name)
	case a.DType != d:
		return fmt.Errorf("input %s is %s, the graph expects %s", name, a.DType, d)
	case len(a.Data) != len(data):
		return fmt.Errorf("input %s has shape %v and %d bytes, the graph expects %d for this batch", name, a.Shape, len(a.Data), len(data))
	case !in.fits(a.Shape):
		return fmt.Errorf("input %s has shape %v, the graph expects %s", name, a.Shape, in.Type)
	}
	copy(data, a.Data)
	return nil
}

// fits compares a shape with the type's fixed sizes; the number of bytes checks the others. A
// single row may come without its first axis.
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
		seg[3*i], seg[3*i+1], seg[3*i+2] = int32(start), int32(q.len()), int32(q.memory)
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
