package exec

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Sequence is one sequence's part of a batch.
type Sequence struct {
	Slot   int   // its state: a handle from Alloc
	Tokens []int // the new tokens
	// Len is the number of new tokens where the graph does not read ids.
	Len int
	// Rows lists the tokens, counted from the first new one, whose rows are
	// wanted (the logits after that token). Nil means the last one; an empty
	// list that is not nil means none.
	Rows []int

	index int // of the slot
	past  int // tokens before, from the slot
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
	// Choose says how a token is chosen from the logits of each wanted row, for
	// Results.Tokens.
	Choose []Choice
	// Want names the outputs that the results are to have; what only serves others is
	// not computed. Nil: the tokens where there is Choose, and else all but them; an
	// empty list that is not nil: none.
	Want []string
}

// Step runs a batch. An error before the first launch leaves everything as it was;
// after one in the middle, the sequences of the batch must be freed or reset, but for
// an [Unchosen], which says of which.
func (e *Engine) Step(ctx context.Context, b *Batch) (Results, error) {
	if err := e.lock(); err != nil {
		return Results{}, err
	}
	defer e.mu.Unlock()
	if err := e.prepare(b); err != nil {
		return Results{}, err
	}
	if err := ctx.Err(); err != nil {
		return Results{}, err
	}
	out, err := e.run(ctx, b)
	some := AsUnchosen(err)
	if err != nil && some == nil {
		for _, q := range b.Sequences {
			e.slots.state[q.index] = broken
		}
		return Results{}, err
	}
	e.advance(b, some)
	return out, err
}

// advance makes sequences longer by what they had in a step, but for those whose token
// could not be chosen.
func (e *Engine) advance(b *Batch, without *Unchosen) {
	row := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if without.any(row, q.rows()) {
			e.slots.state[q.index] = broken
		} else {
			e.slots.tokens[q.index] += q.len()
		}
		row += q.rows()
	}
}

// prepare checks a batch, makes room for it, and fills the inputs.
func (e *Engine) prepare(b *Batch) error {
	z, err := e.admit(b)
	if err != nil {
		return err
	}
	if err := e.admitChoices(b, z.Rows); err != nil {
		return err
	}
	if err := e.want(b); err != nil {
		return err
	}
	if err := e.page(b); err != nil {
		return err
	}
	return e.fill(b, z)
}

// admit checks the batch and counts it.
func (e *Engine) admit(b *Batch) (z graph.Batch, err error) {
	z.Ends = e.work.Ends[:0]
	if len(b.Sequences) == 0 {
		return z, fmt.Errorf("the batch is empty")
	}
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if q.index, err = e.slots.whole(q.Slot); err != nil {
			return z, fmt.Errorf("sequence %d: %w", i, err)
		}
		for j := range i {
			if b.Sequences[j].index == q.index {
				return z, fmt.Errorf("sequences %d and %d share state slot %d", j, i, q.index)
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
		q.past = e.slots.tokens[q.index]
		n, past := int64(q.len()), int64(q.past)
		z.Seqs++
		z.Tokens += n
		z.Cached += past + n
		z.Pairs += n*past + n*(n+1)/2
		z.Rows += int64(q.rows())
		z.Ends = append(z.Ends, int(z.Tokens))
	}
	if e.schedules[0].BySequence() {
		z.Largest = z.LargestShare(len(e.schedules))
	}
	return z, nil
}
