package exec

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/lowering"
)

// Attention caches have a row per slot and token, with the same room for every
// slot. It grows by doubling, unless the options say how much there is.

// reserve makes room for the batch.
func (e *Engine) reserve(b *Batch) error {
	need := 0
	for i := range b.Sequences {
		q := &b.Sequences[i]
		need = max(need, q.past+q.len())
	}
	return e.grow(need)
}

// grow makes room for so many tokens per sequence.
func (e *Engine) grow(need int) error {
	room := e.machine.Room()
	if need <= room || !e.cached() {
		return nil
	}
	if e.limit > 0 {
		return fmt.Errorf("a sequence of %d tokens; the attention caches have room for %d: open the model with more context", need, e.limit)
	}
	for room = max(room, firstRoom); room < need; {
		room *= 2
	}
	return e.machine.Grow(room)
}

// firstRoom is the room of the first batch.
const firstRoom = 64

// cached reports whether the model has caches.
func (e *Engine) cached() bool {
	return slices.ContainsFunc(e.schedules, func(s *lowering.Schedule) bool { return s.Bytes[lowering.Cache] > 0 })
}

// Context is how many tokens a sequence may have; 0: any number.
func (e *Engine) Context() int {
	if !e.cached() {
		return 0
	}
	return e.limit
}
