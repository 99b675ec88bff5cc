// Package state stores what sequences keep between steps: their recurrent states (SSM, conv and
// delta states) in slots of the device, and their KV caches in pages that block tables list.
//
//	slot, err := s.Alloc()            // a new sequence
//	copy, err := s.CopyState(slot)    // its recurrent states, in a spare slot of the device
//	kv, err := s.ShareKV(slot, 0, n)  // references to the KV pages of its first n tokens
//	err = s.Resume(other, copy, kv)   // another sequence resumes from there
//
// The same content has three forms: on the device ([DeviceState], [DeviceKV]), in host memory as
// the ranks hold it ([HostState], [HostKV], both in an [Export]), and by the model's names in f32,
// which any engine of the model takes ([Snapshot]). [Codecs] compress the host form, and a [View]
// gives transfers the memory itself.
package state

import (
	"fmt"

	"github.com/krait-ml/krait/lowering"
)

// Memory is the part of a device's machine that holds slots and KV pages. Its slots are memory:
// those of sequences, spare ones for trials, which change places with them, and others with copies.
type Memory interface {
	// GrowSlots makes slots until there are n in all, those that the machine was opened with
	// included. Steps see only these; the others hold copies. None moves.
	GrowSlots(n int) error
	// ClearSlot makes the states of a slot zero, and CopySlot copies them to another slot.
	ClearSlot(slot int) error
	CopySlot(from, to int) error
	// ReadSlot and WriteSlot copy bytes of the states that a rank has in a slot, from byte at on.
	ReadSlot(rank, slot int, at int64, to []byte) error
	WriteSlot(rank, slot int, at int64, from []byte) error

	// GrowPages makes KV pages until there are n in all, each on every rank and for all its caches.
	// None moves, and a page is written before it is read.
	GrowPages(n int) error
	// CopyRows copies rows of all caches to the same rows of another page.
	CopyRows(from PageRows, page int32) error
	// ReadRows and WriteRows copy rows of one cache of a rank, in their order.
	ReadRows(rank, buffer int, rows []PageRows, to []byte) error
	WriteRows(rank, buffer int, rows []PageRows, from []byte) error
	// ReadPage and WritePage copy bytes of the page that a rank has, from byte at on.
	ReadPage(rank int, page int32, at int64, to []byte) error
	WritePage(rank int, page int32, at int64, from []byte) error
}

// HostMemory is a [Memory] that the process can address.
type HostMemory interface {
	// SlotMemory is the states of a rank in a slot, and PageMemory a page of its caches. Both stay
	// valid until the machine is closed.
	SlotMemory(rank, slot int) []byte
	PageMemory(rank int, page int32) []byte
}

// PageRows are N consecutive rows of a KV page, a row per token.
type PageRows struct {
	Page     int32
	First, N int
}

// Table is the bookkeeping of a [Store]: slots, block tables and pages. It is not safe for
// concurrent use; the engine calls it during steps, while it holds the store's gate.
type Table struct {
	schedules []*lowering.Schedule
	memory    Memory
	slots     slots
	spares    []spare
	replays   []Replay // reused, so that Settle allocates nothing
	context   int      // tokens of a sequence that are cached; 0: no limit
	pages     *pool
	copies    *pool // spare slots of the machine, which hold a DeviceState each
	states    []modelState
}

// NewTable makes the bookkeeping for a number of sequences, each of at most context tokens (0: no
// limit), of which a number may be on trial; for pageTokens see [PageTokens].
func NewTable(schedules []*lowering.Schedule, sequences, trials, context, pageTokens int) (*Table, error) {
	switch {
	case trials < 0 || trials > sequences:
		return nil, fmt.Errorf("%d trials at the same time, of %d slots; the number must be from 0 to that of the slots", trials, sequences)
	case sequences > maxSlots:
		return nil, fmt.Errorf("%d slots; the limit is %d", sequences, maxSlots)
	case sequences < 1 || context < 0:
		return nil, fmt.Errorf("%d slots and a context of %d: neither may be negative", sequences, context)
	case pageTokens < 0 || pageTokens > MaxPageTokens:
		return nil, fmt.Errorf("pages of %d tokens; the size must be from 1 to %d, or 0 for %d", pageTokens, MaxPageTokens, defaultPageTokens)
	}
	states, err := findStates(schedules)
	if err != nil {
		return nil, err
	}
	return &Table{schedules: schedules, slots: newSlots(sequences), spares: newSpares(sequences, trials), context: context, states: states,
		pages: &pool{tokens: PageTokens(pageTokens, context)}, copies: &pool{}}, nil
}

// PageTokens is the number of tokens of a KV page.
func (t *Table) PageTokens() int { return t.pages.tokens }

// Open gives the table its memory, and makes the pages that the slots can fill where the context
// has a limit.
func (t *Table) Open(m Memory) error {
	t.memory = m
	if t.limit() == 0 {
		return nil
	}
	return t.makePages(t.pages.count(t.context) * len(t.slots.status))
}

// Find returns the slot of a handle, and the number of tokens of its sequence. A slot that a failed
// step left in the middle is an error.
func (t *Table) Find(handle int) (slot, tokens int, err error) {
	slot, err = t.slots.whole(handle)
	if err != nil {
		return 0, 0, err
	}
	return slot, t.slots.tokens[slot], nil
}

// Advance adds the tokens of a step to a sequence.
func (t *Table) Advance(slot, tokens int) { t.slots.tokens[slot] += tokens }

// Break marks a slot whose step failed: its sequence must be reset or freed.
func (t *Table) Break(slot int) { t.begin(slot, t.slots.tokens[slot]) }

// begin marks a slot whose states are replaced, until all of them are there, and ends its trial.
func (t *Table) begin(slot, tokens int) {
	t.withdraw(slot)
	t.slots.status[slot], t.slots.tokens[slot] = broken, tokens
}
