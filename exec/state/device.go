package state

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/lowering"
)

// DeviceState is a copy of a sequence's recurrent states (SSM, conv and delta states) on the
// device. Its owner frees it.
type DeviceState struct {
	Tokens int // of the sequence
	copies *pool
	index  int32 // of the spare slot; none where copies is nil: the model has no recurrent state
	bytes  int64
	freed  bool
}

// SlabBytes is the least memory for spare slots that a rank makes at once, unless one slot takes
// more.
const SlabBytes = 1 << 20

// allocCopy allocates a spare slot for the states after a number of tokens, if the model has some.
func (s *Store) allocCopy(tokens int) (*DeviceState, error) {
	d := &DeviceState{Tokens: tokens, bytes: s.StateBytes()}
	if d.bytes == 0 {
		return d, nil
	}
	pool := s.t.copies
	if d.index = pool.alloc(); d.index < 0 {
		slot := int64(0) // bytes of the largest rank
		for _, sch := range s.t.schedules {
			slot = max(slot, sch.Bytes[lowering.State])
		}
		n := len(pool.refs) + int(max(1, SlabBytes/slot))
		if err := s.t.memory.GrowSlots(s.t.MemorySlots() + n); err != nil {
			return nil, err
		}
		pool.add(n)
		d.index = pool.alloc()
	}
	d.copies = pool
	return d, nil
}

// copySlot is the machine's slot of a copy.
func (s *Store) copySlot(d *DeviceState) int { return s.t.MemorySlots() + int(d.index) }

// CopyState copies the recurrent states of a sequence on the device.
func (s *Store) CopyState(slot int) (*DeviceState, error) {
	i, err := s.lockSlot((*slots).whole, slot)
	if err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	d, err := s.allocCopy(s.t.slots.tokens[i])
	if err != nil || d.copies == nil {
		return d, err
	}
	if err := s.t.memory.CopySlot(s.t.slots.memory[i], s.copySlot(d)); err != nil {
		d.Free()
		return nil, err
	}
	return d, nil
}

// Bytes is the size of the copy, over all ranks.
func (d *DeviceState) Bytes() int64 { return d.bytes }

// Free frees the spare slot.
func (d *DeviceState) Free() {
	if d.freed {
		panic("BUG: a state is freed twice")
	}
	if d.copies != nil {
		d.copies.drop(d.index)
	}
	d.freed, d.copies, d.bytes = true, nil, 0
}

// Resume lets the sequence of a slot resume from states and from the KV cache of all tokens before
// them, in order, whose pages it shares. d may be nil where the model has no recurrent state. Both
// stay valid. After an error in the middle the sequence must be freed or reset.
func (s *Store) Resume(slot int, d *DeviceState, kv ...*DeviceKV) error {
	i, err := s.lockSlot((*slots).find, slot)
	if err != nil {
		return err
	}
	defer s.gate.Unlock()
	if d == nil && s.StateBytes() > 0 {
		return errors.New("a KV cache without the recurrent states after its tokens")
	}
	at := 0
	for _, x := range kv {
		if x.From != at {
			return fmt.Errorf("a KV cache of tokens %d to %d where token %d is next", x.From, x.To, at)
		}
		at = x.To
	}
	if d == nil {
		d = &DeviceState{Tokens: at}
	}
	if at != d.Tokens && len(s.t.caches()) > 0 {
		return fmt.Errorf("states after %d tokens, and a KV cache of %d", d.Tokens, at)
	}
	if err := s.t.CheckContext(d.Tokens); err != nil {
		return err
	}
	s.t.begin(i, d.Tokens)
	if d.copies != nil {
		if err := s.t.memory.CopySlot(s.copySlot(d), s.t.slots.memory[i]); err != nil {
			return err
		}
	}
	if err := s.t.setPages(i, kv); err != nil {
		return err
	}
	s.t.slots.status[i] = allocated
	return nil
}
