package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Sequence is one sequence's part of a batch.
type Sequence struct {
	Slot   int   // handle from Alloc
	Tokens []int // the new tokens
	Len    int   // number of new tokens where the graph does not read ids
	// Rows selects the new tokens, from 0, whose rows to return (the logits after that token). nil:
	// the last one; an empty list that is not nil: none.
	Rows []int
	// Trial takes the new tokens, at most MaxTrial, on trial, as speculative decoding does. Rows are,
	// to the bit, those of single steps of these tokens, whose order of operations a trial has. Until
	// Settle the sequence can only be freed or reset; other sequences go on.
	Trial bool

	index  int // of the slot
	past   int // tokens before the new ones
	memory int // the machine's slot with the states that the step updates
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

// Batch is the input of one step.
type Batch struct {
	Sequences []Sequence
	// Inputs has the graph's inputs other than ids, seg, past and rows, which are made from the
	// sequences.
	Inputs map[string]graph.Array
	// Choices configure how a token is chosen from the logits of each selected row, for
	// Results.Tokens.
	Choices []Choice
	// Outputs names the outputs that the results have; steps that only others need do not run. nil:
	// the tokens if it has Choices, otherwise all but tokens; an empty list that is not nil: none.
	Outputs []string
}

// Step runs a batch. An error before the first launch changes nothing; after one in the middle, the
// sequences of the batch must be freed or reset, except after a [ChoiceError], which names the rows
// whose sequences must be.
func (e *Engine) Step(ctx context.Context, b *Batch) (Results, error) {
	if err := e.gate.Lock(); err != nil {
		return Results{}, err
	}
	defer e.gate.Unlock()
	parts, err := e.split(b)
	if err != nil {
		return Results{}, err
	}
	for _, p := range parts {
		if err := e.prepare(p); err != nil {
			return Results{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return Results{}, err
	}
	out, err := e.run(ctx, b, parts)
	some := AsChoiceError(err)
	if err != nil && some == nil {
		for _, q := range b.Sequences {
			e.table.Break(q.index)
		}
		return Results{}, err
	}
	e.advance(b, some)
	return out, err
}

// advance adds the tokens of a step to its sequences, holds those on trial, and breaks sequences
// without a chosen token.
func (e *Engine) advance(b *Batch, without *ChoiceError) {
	row := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		switch {
		case !q.Trial && without.any(row, q.rows()): // a draft before the row may be wrong
			e.table.Break(q.index)
		case q.Trial:
			e.table.Hold(q.index, e.spares[q.index], q.len())
		default:
			e.table.Advance(q.index, q.len())
		}
		row += q.rows()
	}
}

// prepare checks a part of a batch, allocates its KV pages, and fills the inputs.
func (e *Engine) prepare(p part) error {
	z := p.count(p.batch)
	if err := e.takeSpares(p); err != nil {
		return err
	}
	if err := p.checkChoices(p.batch, z.Rows); err != nil {
		return err
	}
	if err := p.selectOutputs(p.batch); err != nil {
		return err
	}
	if err := e.allocPages(p); err != nil {
		return err
	}
	return p.fill(p.batch, z)
}

// allocPages gives the sequences of a batch block tables with writable pages for their new tokens.
func (e *Engine) allocPages(p part) error {
	p.work.BlockTables = p.work.BlockTables[:0]
	if !e.table.HasCache() {
		return nil
	}
	for i := range p.batch.Sequences {
		if q := &p.batch.Sequences[i]; e.table.CheckContext(q.past+q.len()) != nil {
			return e.table.CheckContext(q.past + q.len())
		}
	}
	for i := range p.batch.Sequences {
		q := &p.batch.Sequences[i]
		pages, err := e.table.BlockTable(q.index, q.past, q.past+q.len())
		if err != nil {
			return err
		}
		p.work.BlockTables = append(p.work.BlockTables, pages)
	}
	return nil
}

// find checks the sequences of a batch, and finds their slots.
func (e *Engine) find(b *Batch) (err error) {
	if len(b.Sequences) == 0 {
		return errors.New("the batch is empty")
	}
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if q.index, q.past, err = e.table.Find(q.Slot); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
		for j := range i {
			if b.Sequences[j].index == q.index {
				return fmt.Errorf("sequences %d and %d share state slot %d", j, i, q.index)
			}
		}
		if q.len() < 1 {
			return fmt.Errorf("sequence %d has no tokens", i)
		}
		for _, r := range q.Rows {
			if r < 0 || r >= q.len() {
				return fmt.Errorf("sequence %d: row %d of %d tokens", i, r, q.len())
			}
		}
	}
	return nil
}

// count sums the sizes of a batch.
func (p *part) count(b *Batch) (z graph.Batch) {
	z.Ends, p.work.Wide = p.work.Ends[:0], p.work.Wide[:0]
	for i := range b.Sequences {
		q := &b.Sequences[i]
		n, past := int64(q.len()), int64(q.past)
		p.work.addWide(int(z.Tokens), q.past, q.len())
		z.Seqs++
		z.Tokens += n
		z.Cached += past + n
		z.Pairs += n*past + n*(n+1)/2
		z.Rows += int64(q.rows())
		z.Ends = append(z.Ends, int(z.Tokens))
	}
	if place := p.schedules[0].RowPlace(); place > graph.Even {
		z.Largest = z.LargestShare(place, p.schedules[0].RowRanks())
	}
	return z
}
