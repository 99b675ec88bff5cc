package state

import "fmt"

// slots tracks which state slots are allocated, and the tokens and block tables of their sequences.
//
// A handle names a slot: its number and, above that, how often it was freed, so that the handle
// of a sequence that was freed does not reach the next one.
type slots struct {
	status []slotStatus
	tokens []int
	frees  []int
	memory []int     // the machine's slot with the states: see [Table.Memory]
	pages  [][]int32 // block tables: KV pages in the order of their tokens
}

type slotStatus uint8

const (
	free      slotStatus = iota
	allocated            // it has the state after the last step
	trial                // and has tokens on trial, which Settle ends
	broken               // a step, or Resume, failed in the middle
)

const (
	slotBits = 20 // of a handle are the slot's number
	maxSlots = 1 << slotBits
)

func newSlots(n int) slots {
	s := slots{make([]slotStatus, n), make([]int, n), make([]int, n), make([]int, n), make([][]int32, n)}
	for i := range n {
		s.memory[i] = i
	}
	return s
}

// SlotIndex is the number of a handle's slot, from 0.
func SlotIndex(handle int) int { return handle & (maxSlots - 1) }

func (s *slots) handle(i int) int { return s.frees[i]<<slotBits | i }

// find returns the slot of a handle whose sequence was not freed.
func (s *slots) find(handle int) (int, error) {
	i := SlotIndex(handle)
	switch {
	case handle < 0 || i >= len(s.status):
		return 0, fmt.Errorf("there is no state slot %d; there are %d", i, len(s.status))
	case handle>>slotBits != s.frees[i]:
		return 0, fmt.Errorf("state slot %d is not this sequence's any more: it was freed", i)
	case s.status[i] == free:
		return 0, fmt.Errorf("state slot %d is not allocated; Alloc allocates one", i)
	}
	return i, nil
}

// whole is find for a slot that is neither broken nor on trial.
func (s *slots) whole(handle int) (int, error) {
	i, err := s.find(handle)
	switch {
	case err != nil:
	case s.status[i] == broken:
		err = fmt.Errorf("state slot %d was left in the middle of a step that failed; free or reset it", i)
	case s.status[i] == trial:
		err = fmt.Errorf("state slot %d has tokens on trial; Settle keeps some of them first", i)
	}
	return i, err
}

// Alloc allocates a slot for a new sequence, whose state is zero, and returns the handle that names
// it until [Store.Free]. Afterwards the handle is an error.
func (s *Store) Alloc() (int, error) {
	if err := s.gate.Lock(); err != nil {
		return 0, err
	}
	defer s.gate.Unlock()
	for i, status := range s.t.slots.status {
		if status == free {
			return s.t.slots.handle(i), s.t.clear(i)
		}
	}
	return 0, fmt.Errorf("all %d state slots are taken; free a sequence, or open the model with more slots", s.Slots())
}

// Free frees a slot. Freeing it again is an error, also when another sequence has it by then.
func (s *Store) Free(slot int) error {
	i, err := s.lockSlot((*slots).find, slot)
	if err != nil {
		return err
	}
	defer s.gate.Unlock()
	s.t.withdraw(i)
	s.t.slots.status[i] = free
	s.t.release(i, 0)
	s.t.slots.frees[i]++
	return nil
}

// Reset gives an allocated slot the state of a new sequence.
func (s *Store) Reset(slot int) error {
	i, err := s.lockSlot((*slots).find, slot)
	if err != nil {
		return err
	}
	defer s.gate.Unlock()
	return s.t.clear(i)
}

// clear frees the pages of a slot, makes its state zero and then allocates it.
func (t *Table) clear(i int) error {
	t.withdraw(i)
	t.slots.tokens[i] = 0
	t.release(i, 0)
	err := t.memory.ClearSlot(t.slots.memory[i])
	if err == nil {
		t.slots.status[i] = allocated
	}
	return err
}

// Len is the number of tokens of a sequence.
func (s *Store) Len(slot int) (int, error) {
	i, err := s.lockSlot((*slots).whole, slot)
	if err != nil {
		return 0, err
	}
	defer s.gate.Unlock()
	return s.t.slots.tokens[i], nil
}

// SetLen sets the number of tokens of a sequence, before [Store.SetState] writes its states.
func (s *Store) SetLen(slot, tokens int) error {
	i, err := s.lockSlot((*slots).whole, slot)
	if err != nil {
		return err
	}
	defer s.gate.Unlock()
	if tokens < 0 {
		return fmt.Errorf("a sequence of %d tokens; the number must not be negative", tokens)
	}
	if err := s.t.extend(i, tokens); err != nil {
		return err
	}
	s.t.slots.tokens[i] = tokens
	s.t.release(i, tokens)
	return nil
}
