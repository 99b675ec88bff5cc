package exec

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
)

// Sequence is one sequence's part of a batch.
type Sequence struct {
	Slot   int   // its state, from Alloc
	Tokens []int // the new tokens
	// Len is the number of new tokens where the graph does not read ids.
	Len int
	// Rows lists the tokens, counted from the first new one, whose rows are
	// wanted (the logits after that token). Nil means the last one; an empty
	// list that is not nil means none.
	Rows []int
}

func (q *Sequence) len() int {
	if q.Tokens != nil {
		return len(q.Tokens)
	}
	return q.Len
}

func (q *Sequence) rows() int {
	if q.Rows == nil {
		return 1
	}
	return len(q.Rows)
}

// Batch is what one step runs.
type Batch struct {
	Sequences []Sequence
	// Inputs gives the graph's inputs other than ids, seg and rows, which are
	// made from the sequences.
	Inputs map[string]graph.Array
}

// feed is an input of the graph.
type feed struct {
	buffer int
	name   string
	fill   func(*Engine, *Batch, []byte) error // nil: from Batch.Inputs
}

// The inputs that every batch has.
const (
	idsInput  = "ids"
	segInput  = "seg"
	rowsInput = "rows"
)

// findInputs lists the inputs, and the bound that tables set on ids.
func (e *Engine) findInputs() {
	fills := map[string]func(*Engine, *Batch, []byte) error{idsInput: (*Engine).fillIDs, segInput: (*Engine).fillSegments, rowsInput: (*Engine).fillRows}
	for i, b := range e.s.Buffers {
		if b.Space == lowering.Input {
			e.feeds = append(e.feeds, feed{i, b.Value.Name, fills[b.Value.Name]})
		}
	}
	e.limits = map[int]int{}
	for _, st := range e.s.Steps {
		if st.Op.Name == "embedding" {
			e.limits[st.Args[0].Buffer] = st.Args[1].Dims[0].Len()
		}
	}
}

// Step runs a batch and leaves its results in [Engine.Output]. An error before
// the first launch leaves everything as it was; after one in the middle, the
// sequences of the batch must be freed or reset.
func (e *Engine) Step(ctx context.Context, b *Batch) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	z, err := e.admit(b)
	if err != nil {
		return err
	}
	if err := e.feed(b, z); err != nil {
		return err
	}
	e.resize(z)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.run(ctx, e.steps); err != nil {
		for _, q := range b.Sequences {
			e.slots.state[q.Slot] = broken
		}
		return err
	}
	return nil
}

// admit checks the batch and counts it.
func (e *Engine) admit(b *Batch) (z graph.Sizes, err error) {
	if len(b.Sequences) == 0 {
		return z, fmt.Errorf("the batch is empty")
	}
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if err := e.usable(q.Slot); err != nil {
			return z, fmt.Errorf("sequence %d: %w", i, err)
		}
		for j := range i {
			if b.Sequences[j].Slot == q.Slot {
				return z, fmt.Errorf("sequences %d and %d share state slot %d", j, i, q.Slot)
			}
		}
		if q.len() < 1 {
			return z, fmt.Errorf("sequence %d has no tokens", i)
		}
		for _, r := range q.Rows {
			if r < 0 || r >= q.len() {
				return z, fmt.Errorf("sequence %d: row %d is wanted of %d tokens", i, r, q.len())
			}
		}
		z.Seqs++
		z.Tokens += int64(q.len())
		z.Rows += int64(q.rows())
	}
	return z, nil
}

// feed fills the inputs; their memory only grows, so that decoding allocates
// nothing.
func (e *Engine) feed(b *Batch, z graph.Sizes) error {
	for _, f := range e.feeds {
		t := &e.s.Buffers[f.buffer].Value.Type
		n := int64(t.DType.Bytes())
		for _, d := range t.Dims {
			if d.Sym != 0 {
				n *= z.Of(d.Sym)
			} else {
				n *= int64(d.Len())
			}
		}
		if int64(cap(e.memory[f.buffer])) < n || e.memory[f.buffer] == nil {
			e.memory[f.buffer] = make([]byte, n, 2*n+1)
			e.bound = false
		}
		e.memory[f.buffer] = e.memory[f.buffer][:n]
		data := e.memory[f.buffer]
		var err error
		if f.fill != nil {
			err = f.fill(e, b, data)
		} else {
			err = given(b, f.name, t.DType, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// given copies an input of the caller.
func given(b *Batch, name string, d graph.DType, data []byte) error {
	a, ok := b.Inputs[name]
	switch {
	case !ok:
		return fmt.Errorf("input %s is not given", name)
	case a.DType != d:
		return fmt.Errorf("input %s is %s, the graph wants %s", name, a.DType, d)
	case len(a.Data) != len(data):
		return fmt.Errorf("input %s has shape %v and %d bytes, the graph wants %d for this batch", name, a.Shape, len(a.Data), len(data))
	}
	copy(data, a.Data)
	return nil
}

func (e *Engine) fillIDs(b *Batch, data []byte) error {
	ids := view[int32](data)
	limit, bounded := e.idLimit()
	at := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if q.Tokens == nil {
			return fmt.Errorf("sequence %d: the graph reads token ids and none are given", i)
		}
		for j, id := range q.Tokens {
			if id < 0 || bounded && id >= limit {
				return fmt.Errorf("sequence %d: token %d is %d; ids go from 0 to %d", i, j, id, limit-1)
			}
			ids[at] = int32(id)
			at++
		}
	}
	return nil
}

func (e *Engine) idLimit() (int, bool) {
	for _, f := range e.feeds {
		if f.name == idsInput {
			limit, ok := e.limits[f.buffer]
			return limit, ok
		}
	}
	return 0, false
}

func (e *Engine) fillSegments(b *Batch, data []byte) error {
	seg := view[int32](data)
	start := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		seg[3*i], seg[3*i+1], seg[3*i+2] = int32(start), int32(q.len()), int32(q.Slot)
		start += q.len()
	}
	return nil
}

func (e *Engine) fillRows(b *Batch, data []byte) error {
	rows := view[int32](data)
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

// Output is a result of the last step, valid until the next: a row per token,
// sequence or wanted row, in the order of the batch.
func (e *Engine) Output(name string) (kernels.Tensor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var t kernels.Tensor
	for _, o := range e.s.Outputs {
		if o.Name == name {
			e.bind(&t, o.Ref)
			return t, nil
		}
	}
	return t, fmt.Errorf("the graph has no output %s", name)
}
