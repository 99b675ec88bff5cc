package exec

import (
	"fmt"

	"github.com/krait-ml/krait/exec/internal/place"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// slots keeps which state slots are taken, and how many tokens their sequences have.
type slots struct {
	state  []slotState
	tokens []int
}

type slotState uint8

const (
	free   slotState = iota
	taken            // its state is that after the last step
	broken           // a step was stopped in the middle of it
)

func newSlots(n int) slots { return slots{make([]slotState, n), make([]int, n)} }

// Alloc takes a free slot for a new sequence. Its state is zero.
func (e *Engine) Alloc() (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.slots.state {
		if s == free {
			if err := e.clear(i); err != nil {
				return 0, err
			}
			e.slots.state[i] = taken
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
	if err := e.clear(slot); err != nil {
		return err
	}
	e.slots.state[slot] = taken
	return nil
}

// clear makes the state of a slot zero. Of caches nothing is read that was not
// written since.
func (e *Engine) clear(slot int) error {
	e.slots.tokens[slot] = 0
	return e.machine.Clear(slot)
}

// Len is the number of tokens that a sequence has been given.
func (e *Engine) Len(slot int) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(slot); err != nil {
		return 0, err
	}
	return e.slots.tokens[slot], nil
}

// SetLen says how many tokens a sequence has, before [Engine.SetState] brings
// its states from elsewhere.
func (e *Engine) SetLen(slot, tokens int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(slot); err != nil {
		return err
	}
	if tokens < 0 {
		return fmt.Errorf("a sequence of %d tokens", tokens)
	}
	if err := e.grow(tokens); err != nil {
		return err
	}
	e.slots.tokens[slot] = tokens
	return nil
}

// State copies a state of a sequence, by the name of the graph's state value:
// all of it, whatever the ranks hold; of a cache, a row per token.
func (e *Engine) State(slot int, name string) ([]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []float32
	err := e.eachHeld(slot, name, func(size int) error {
		out = make([]float32, size)
		return nil
	}, func(h held) error {
		data := make([]byte, h.bytes)
		if err := e.machine.Read(h.rank, h.buffer, h.at, data); err != nil {
			return err
		}
		h.each(func(whole, part, n int) { copy(out[whole:whole+n], place.View[float32](data)[part:]) })
		return nil
	})
	return out, err
}

// SetState replaces a state of a sequence.
func (e *Engine) SetState(slot int, name string, values []float32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.eachHeld(slot, name, func(size int) error {
		if len(values) != size {
			return fmt.Errorf("state %s has %d elements, %d given", name, size, len(values))
		}
		return nil
	}, func(h held) error {
		data := make([]byte, h.bytes)
		h.each(func(whole, part, n int) { copy(place.View[float32](data)[part:part+n], values[whole:]) })
		return e.machine.Write(h.rank, h.buffer, h.at, data)
	})
}

// held is what a rank holds of the state of a slot: bytes of a buffer, and where
// their elements are in the whole.
type held struct {
	rank, buffer int
	at, bytes    int64
	each         func(visit func(whole, part, n int))
}

// eachHeld visits what the ranks hold of a slot's state, once its size is right.
func (e *Engine) eachHeld(slot int, name string, size func(int) error, see func(held) error) error {
	if err := e.usable(slot); err != nil {
		return err
	}
	found := false
	for r, s := range e.schedules {
		for i, b := range s.Buffers {
			if b.Space != lowering.State && b.Space != lowering.Cache || b.Name != name {
				continue
			}
			rows, room := 1, 1
			if b.Space == lowering.Cache {
				rows, room = e.slots.tokens[slot], e.machine.Room()
			}
			cols := graph.RowElems(b.Type.Dims)
			if !found {
				found = true
				if err := size(rows * cols); err != nil {
					return err
				}
			}
			p, width := graph.PiecesOf(b.Type, s.Ranks, s.Rank), int(b.Bytes)/4
			h := held{r, i, int64(slot*room) * b.Bytes, int64(rows) * b.Bytes, func(visit func(whole, part, n int)) {
				p.Each(rows, cols, func(row, whole, _, part, n int) { visit(row*cols+whole, row*width+part, n) })
			}}
			if err := see(h); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("the graph has no state %s", name)
	}
	return nil
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
