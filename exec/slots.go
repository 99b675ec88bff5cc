package exec

import (
	"fmt"

	"github.com/krait-ml/krait/lowering"
)

// slots keeps which state slots are taken.
type slots struct{ state []slotState }

type slotState uint8

const (
	free   slotState = iota
	taken            // its state is that after the last step
	broken           // a step was stopped in the middle of it
)

func newSlots(n int) slots { return slots{make([]slotState, n)} }

// Alloc takes a free slot for a new sequence. Its state is zero.
func (e *Engine) Alloc() (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.slots.state {
		if s == free {
			e.slots.state[i] = taken
			e.clear(i)
			return i, nil
		}
	}
	return 0, fmt.Errorf("all %d state slots are taken; free a sequence, or open the model with more slots", len(e.slots.state))
}

// Free gives a slot back. Freeing a free slot is an error.
func (e *Engine) Free(slot int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot < 0 || slot >= len(e.slots.state) || e.slots.state[slot] == free {
		return fmt.Errorf("state slot %d is not taken", slot)
	}
	e.slots.state[slot] = free
	return nil
}

// Reset gives a taken slot the state of a new sequence.
func (e *Engine) Reset(slot int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot < 0 || slot >= len(e.slots.state) || e.slots.state[slot] == free {
		return fmt.Errorf("state slot %d is not taken", slot)
	}
	e.slots.state[slot] = taken
	e.clear(slot)
	return nil
}

func (e *Engine) clear(slot int) {
	for i, b := range e.s.Buffers {
		if b.Space == lowering.State {
			clear(e.memory[i][int64(slot)*b.Bytes : int64(slot+1)*b.Bytes])
		}
	}
}

// State copies a state of a sequence, by the name of the graph's state value.
func (e *Engine) State(slot int, name string) ([]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(slot); err != nil {
		return nil, err
	}
	for i, b := range e.s.Buffers {
		if b.Space == lowering.State && b.Value.Name == name {
			all := view[float32](e.memory[i])
			n := int(b.Bytes) / 4
			return append([]float32(nil), all[slot*n:(slot+1)*n]...), nil
		}
	}
	return nil, fmt.Errorf("the graph has no state %s", name)
}

// SetState replaces a state of a sequence.
func (e *Engine) SetState(slot int, name string, values []float32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(slot); err != nil {
		return err
	}
	for i, b := range e.s.Buffers {
		if b.Space == lowering.State && b.Value.Name == name {
			n := int(b.Bytes) / 4
			if len(values) != n {
				return fmt.Errorf("state %s has %d elements, %d given", name, n, len(values))
			}
			copy(view[float32](e.memory[i])[slot*n:], values)
			return nil
		}
	}
	return fmt.Errorf("the graph has no state %s", name)
}

// usable reports why a slot cannot be used in a step.
func (e *Engine) usable(slot int) error {
	switch {
	case slot < 0 || slot >= len(e.slots.state):
		return fmt.Errorf("there is no state slot %d; there are %d", slot, len(e.slots.state))
	case e.slots.state[slot] == free:
		return fmt.Errorf("state slot %d is not taken; Alloc gives one", slot)
	case e.slots.state[slot] == broken:
		return fmt.Errorf("state slot %d was left in the middle of a step that failed; free or reset it", slot)
	}
	return nil
}
