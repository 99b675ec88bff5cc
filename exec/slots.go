package exec

import "fmt"

// slots keeps which state slots are taken, and how many tokens their sequences have.
//
// A slot is named by a handle: its number and, above that, how often it was given
// back, so that the handle of a sequence that was freed does not reach the next one.
type slots struct {
	state  []slotState
	tokens []int
	freed  []int     // how often
	pages  [][]int32 // of caches, in order
}

type slotState uint8

const (
	free   slotState = iota
	taken            // its state is that after the last step
	broken           // a step was stopped in the middle of it
)

// slotBits of a handle are the slot's number.
const slotBits = 20

const maxSlots = 1 << slotBits

func newSlots(n int) slots {
	return slots{make([]slotState, n), make([]int, n), make([]int, n), make([][]int32, n)}
}

// SlotNumber is the number of the slot that a handle calls, from 0.
func SlotNumber(handle int) int { return handle & (maxSlots - 1) }

func (s *slots) handle(i int) int { return s.freed[i]<<slotBits | i }

// find is the slot of a handle whose sequence was not freed.
func (s *slots) find(handle int) (int, error) {
	i := SlotNumber(handle)
	switch {
	case handle < 0 || i >= len(s.state):
		return 0, fmt.Errorf("there is no state slot %d; there are %d", i, len(s.state))
	case handle>>slotBits != s.freed[i]:
		return 0, fmt.Errorf("state slot %d is not taken by this sequence any more: it was freed", i)
	case s.state[i] == free:
		return 0, fmt.Errorf("state slot %d is not taken; Alloc gives one", i)
	}
	return i, nil
}

// whole is find for a slot whose state is that after a step.
func (s *slots) whole(handle int) (int, error) {
	i, err := s.find(handle)
	if err == nil && s.state[i] == broken {
		err = fmt.Errorf("state slot %d was left in the middle of a step that failed; free or reset it", i)
	}
	return i, err
}

// Slots is how many sequences can have state at the same time.
func (e *Engine) Slots() int { return len(e.slots.state) }

// Alloc takes a free slot for a new sequence, whose state is zero, and returns the
// handle by which it is called until [Engine.Free]; then the handle is an error.
func (e *Engine) Alloc() (int, error) {
	if err := e.lock(); err != nil {
		return 0, err
	}
	defer e.mu.Unlock()
	for i, s := range e.slots.state {
		if s == free {
			if err := e.clear(i); err != nil {
				return 0, err
			}
			e.slots.state[i] = taken
			return e.slots.handle(i), nil
		}
	}
	return 0, fmt.Errorf("all %d state slots are taken; free a sequence, or open the model with more slots", len(e.slots.state))
}

// Free gives a slot back. Freeing it again is an error, also when another sequence
// has taken it.
func (e *Engine) Free(slot int) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	i, err := e.slots.find(slot)
	if err != nil {
		return err
	}
	e.slots.state[i] = free
	e.release(i, 0)
	e.slots.freed[i]++
	return nil
}

// Reset gives a taken slot the state of a new sequence.
func (e *Engine) Reset(slot int) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	i, err := e.slots.find(slot)
	if err != nil {
		return err
	}
	if err := e.clear(i); err != nil {
		return err
	}
	e.slots.state[i] = taken
	return nil
}

// clear makes the state of a slot zero, and gives back its pages.
func (e *Engine) clear(i int) error {
	e.slots.tokens[i] = 0
	e.release(i, 0)
	return e.machine.Clear(i)
}

// Len is the number of tokens that a sequence has been given.
func (e *Engine) Len(slot int) (int, error) {
	if err := e.lock(); err != nil {
		return 0, err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return 0, err
	}
	return e.slots.tokens[i], nil
}

// SetLen says how many tokens a sequence has, before [Engine.SetState] brings
// its states from elsewhere.
func (e *Engine) SetLen(slot, tokens int) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return err
	}
	if tokens < 0 {
		return fmt.Errorf("a sequence of %d tokens", tokens)
	}
	if err := e.extend(i, tokens); err != nil {
		return err
	}
	e.slots.tokens[i] = tokens
	e.release(i, tokens)
	return nil
}
