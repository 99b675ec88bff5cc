package exec

import (
	"fmt"

	"github.com/krait-ml/krait/exec/internal/place"
	"github.com/krait-ml/krait/lowering"
)

// Snapshot is all that a sequence keeps between steps, by the model's names: it goes
// on from there in any engine of the model, on other ranks, by another strategy, on
// another device.
type Snapshot struct {
	Tokens int                  // that the sequence was given
	States map[string][]float32 // a row; of a cache, one per token
}

// Snapshot copies what a sequence keeps, of each rank in one piece for states and
// one for caches.
func (e *Engine) Snapshot(slot int) (*Snapshot, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return nil, err
	}
	out := &Snapshot{Tokens: e.slots.tokens[i], States: map[string][]float32{}}
	for k := range e.states {
		st := &e.states[k]
		out.States[st.Name] = make([]float32, e.rows(st.space, i)*st.cols)
	}
	return out, e.eachRun(i, func(rank int, space lowering.Space, at int64, data []float32) error {
		if err := e.machine.Read(rank, space, at, place.Bytes(data)); err != nil {
			return err
		}
		e.eachStretch(rank, space, i, func(st *state, whole, part, n int) {
			copy(out.States[st.Name][whole:whole+n], data[part:])
		})
		return nil
	})
}

// Restore lets a sequence go on from a snapshot. One that is of another model leaves
// the sequence as it was.
func (e *Engine) Restore(slot int, s *Snapshot) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	i, err := e.slots.find(slot)
	if err != nil {
		return err
	}
	if err := e.fits(s); err != nil {
		return err
	}
	if err := e.grow(s.Tokens); err != nil {
		return err
	}
	e.slots.state[i], e.slots.tokens[i] = broken, s.Tokens // until all of it is there
	err = e.eachRun(i, func(rank int, space lowering.Space, at int64, data []float32) error {
		e.eachStretch(rank, space, i, func(st *state, whole, part, n int) {
			copy(data[part:], s.States[st.Name][whole:whole+n])
		})
		return e.machine.Write(rank, space, at, place.Bytes(data))
	})
	if err == nil {
		e.slots.state[i] = taken
	}
	return err
}

// fits checks that a snapshot is of this model.
func (e *Engine) fits(s *Snapshot) error {
	if s.Tokens < 0 {
		return fmt.Errorf("a snapshot of a sequence of %d tokens", s.Tokens)
	}
	for k := range e.states {
		st, rows := &e.states[k], 1
		if st.space == lowering.Cache {
			rows = s.Tokens
		}
		values, ok := s.States[st.Name]
		if !ok {
			return fmt.Errorf("the snapshot is of another model: it has no state %s", st.Name)
		}
		if err := st.fits(values, rows); err != nil {
			return fmt.Errorf("the snapshot is of another model: %w", err)
		}
	}
	if len(s.States) != len(e.states) {
		return fmt.Errorf("the snapshot is of another model: it has %d states, this one %d", len(s.States), len(e.states))
	}
	return nil
}

// eachRun visits what each rank keeps of a slot, with memory for it.
func (e *Engine) eachRun(slot int, visit func(rank int, space lowering.Space, at int64, data []float32) error) error {
	for rank, s := range e.schedules {
		for _, space := range []lowering.Space{lowering.State, lowering.Cache} {
			first := int64(slot) * s.Bytes[space]
			if space == lowering.Cache {
				first *= int64(e.machine.Room())
			}
			data := make([]float32, int64(e.rows(space, slot))*s.Bytes[space]/4)
			if err := visit(rank, space, first, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachStretch pairs the elements of states with those of what a rank keeps of a slot.
func (e *Engine) eachStretch(rank int, space lowering.Space, slot int, visit func(st *state, whole, part, n int)) {
	for k := range e.states {
		st := &e.states[k]
		for j := range st.held {
			if h := &st.held[j]; h.rank == rank && st.space == space {
				h.each(e.rows(space, slot), st.cols, func(whole, part, n int) { visit(st, whole, part, n) })
			}
		}
	}
}
