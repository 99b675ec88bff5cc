package exec

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
)

// MaxTrial is the most tokens that a sequence may take on trial.
const MaxTrial = lowering.MaxTrial

// Kept is how many tokens of a trial to keep.
type Kept = state.Kept

// Trial is a sequence of a [Work] on trial. Devices copy the states of slot From to the sequence's
// slot of %seg, on which the step runs, one token after another in each recurrence; and they keep
// the operands of recurrences in the ring of the spare, for Replay.
type Trial struct {
	Sequence    int // of the batch
	Spare, From int
}

// Settle ends trials (see [Sequence].Trial): it keeps the first tokens of each and rolls back the
// others. Then states, KV pages and the number of tokens are, to the bit, those of single steps of
// the tokens kept. Trials that it does not name go on. A sequence that is not on trial, or a number
// that is not from 1 to that of its tokens, is an error and changes nothing. After an error in the
// middle the sequences named must be freed or reset.
func (e *Engine) Settle(ctx context.Context, kept []Kept) error {
	if err := e.gate.Lock(); err != nil {
		return err
	}
	defer e.gate.Unlock()
	replays, err := e.table.Replays(kept)
	if err == nil && len(replays) > 0 {
		if err = e.machine.Replay(ctx, replays); err != nil {
			for _, k := range kept {
				e.table.Break(state.SlotIndex(k.Slot))
			}
		}
	}
	if err == nil {
		e.table.Keep(kept)
	}
	return err
}

// takeSpares finds a spare for each trial of a batch.
func (e *Engine) takeSpares(p part) error {
	b := p.batch
	p.work.Trials = p.work.Trials[:0]
	for i := range b.Sequences {
		q := &b.Sequences[i]
		if q.memory = e.table.Memory(q.index); !q.Trial {
			continue
		}
		if q.len() > MaxTrial {
			return fmt.Errorf("sequence %d: %d tokens on trial; the limit is %d", i, q.len(), MaxTrial)
		}
		from := q.memory
		spare := 0
		if spare, q.memory = e.table.Spare(e.nextSpare); spare < 0 {
			return fmt.Errorf("sequence %d: no spare is free for a trial: Settle ends trials, and Options.Trials sets how many there may be", i)
		}
		e.spares[q.index], e.nextSpare = spare, spare+1
		p.work.Trials = append(p.work.Trials, Trial{i, spare, from})
	}
	return nil
}
