package state

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/lowering"
)

// A sequence on trial has its states twice: those before the trial where they were, and those after
// all of its tokens in a spare slot of the machine. If all tokens are kept the two slots change
// places; otherwise the device replays the tokens kept on the states before. Its KV pages have the
// rows of all tokens, of which Settle drops those at the end.

// spare is a slot of the machine for a trial.
type spare struct {
	memory int // the machine's slot
	slot   int // of the sequence on trial; -1: the spare is free
	tokens int // on trial
}

func newSpares(sequences, trials int) []spare {
	list := make([]spare, trials)
	for i := range list {
		list[i] = spare{sequences + i, -1, 0}
	}
	return list
}

// MemorySlots is the number of the machine's slots that steps see.
func (t *Table) MemorySlots() int { return len(t.slots.status) + len(t.spares) }

// Memory is the machine's slot with the states of a sequence.
func (t *Table) Memory(slot int) int { return t.slots.memory[slot] }

// Spare finds a free spare from one on, and the machine's slot of it; -1: there is none.
func (t *Table) Spare(from int) (spare, memory int) {
	for i := from; i < len(t.spares); i++ {
		if t.spares[i].slot < 0 {
			return i, t.spares[i].memory
		}
	}
	return -1, -1
}

// Hold puts the tokens of a step on trial, with the states after them in a spare.
func (t *Table) Hold(slot, spare, tokens int) {
	x := &t.spares[spare]
	x.slot, x.tokens = slot, tokens
	t.slots.status[slot] = trial
	t.slots.tokens[slot] += tokens
}

// spareOf is the spare of a sequence; -1: it is not on trial.
func (t *Table) spareOf(slot int) int {
	return slices.IndexFunc(t.spares, func(x spare) bool { return x.slot == slot })
}

// withdraw ends the trial of a sequence, if it is on one, whose states will be replaced.
func (t *Table) withdraw(slot int) {
	if i := t.spareOf(slot); i >= 0 {
		t.spares[i].slot = -1
	}
}

// hasStates reports whether the model has recurrent states.
func (t *Table) hasStates() bool {
	return slices.ContainsFunc(t.schedules, func(s *lowering.Schedule) bool { return s.Bytes[lowering.State] > 0 })
}

// Kept is how many tokens of a trial to keep.
type Kept struct {
	Slot   int // handle from Alloc
	Tokens int // the first ones, at least 1
}

// Replay says to take the states of one of the machine's slots past the first tokens of a trial.
type Replay struct {
	Spare, Memory int // the trial's spare; the slot with the states before it
	Tokens        int
}

// Keep ends trials, once the device has replayed those that [Table.Replays] lists.
func (t *Table) Keep(kept []Kept) {
	for _, k := range kept {
		i := SlotIndex(k.Slot)
		x := &t.spares[t.spareOf(i)]
		if k.Tokens == x.tokens {
			t.slots.memory[i], x.memory = x.memory, t.slots.memory[i]
		}
		t.slots.tokens[i] -= x.tokens - k.Tokens
		t.release(i, t.slots.tokens[i])
		t.slots.status[i], x.slot = allocated, -1
	}
}

// Replays checks what to keep, and lists the trials of which that is not all, where the model has
// recurrent states. The list is valid until the next.
func (t *Table) Replays(kept []Kept) ([]Replay, error) {
	t.replays = t.replays[:0]
	for n, k := range kept {
		i, err := t.slots.find(k.Slot)
		if err != nil {
			return nil, fmt.Errorf("trial %d: %w", n, err)
		}
		at := t.spareOf(i)
		if at < 0 {
			return nil, fmt.Errorf("trial %d: state slot %d has no tokens on trial", n, i)
		}
		switch all := t.spares[at].tokens; {
		case k.Tokens < 1 || k.Tokens > all:
			return nil, fmt.Errorf("trial %d: %d tokens are to be kept; state slot %d has %d on trial, of which it keeps at least 1", n, k.Tokens, i, all)
		case slices.ContainsFunc(kept[:n], func(x Kept) bool { return x.Slot == k.Slot }):
			return nil, fmt.Errorf("trial %d: state slot %d is named twice", n, i)
		case k.Tokens < all:
			t.replays = append(t.replays, Replay{at, t.slots.memory[i], k.Tokens})
		}
	}
	if !t.hasStates() {
		return nil, nil
	}
	return t.replays, nil
}
