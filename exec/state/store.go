package state

import (
	"github.com/krait-ml/krait/exec/internal/gate"
	"github.com/krait-ml/krait/lowering"
)

// Store holds the state of sequences. Its methods may be called from several goroutines; they wait
// for each other and for the engine's step.
type Store struct {
	t    *Table
	gate *gate.Gate
}

// NewStore makes the store of a table behind the engine's gate.
func NewStore(t *Table, g *gate.Gate) *Store { return &Store{t, g} }

// lockSlot locks the store, and finds the slot of a handle. On an error the store is not locked.
func (s *Store) lockSlot(find func(*slots, int) (int, error), handle int) (int, error) {
	if err := s.gate.Lock(); err != nil {
		return 0, err
	}
	i, err := find(&s.t.slots, handle)
	if err != nil {
		s.gate.Unlock()
	}
	return i, err
}

// Slots is the number of sequences that can have state at the same time.
func (s *Store) Slots() int { return len(s.t.slots.status) }

// Context is the number of tokens that a sequence may have; 0: no limit.
func (s *Store) Context() int { return s.t.limit() }

// StateBytes is the size of a [DeviceState], over all ranks.
func (s *Store) StateBytes() (n int64) {
	for _, sch := range s.t.schedules {
		n += sch.Bytes[lowering.State]
	}
	return n
}

// KVBytes is the size of the KV cache of a token, over all ranks.
func (s *Store) KVBytes() int64 { return s.t.kvBytes() }
