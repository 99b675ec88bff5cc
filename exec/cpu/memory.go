package cpu

import (
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
)

// GrowSlots makes spare slots, for copies of states.
func (m *machine) GrowSlots(n int) error {
	for _, r := range m.ranks {
		size, more := r.s.Bytes[lowering.State], int64(n-r.slots-len(r.kept))
		slab := roomy(size * more)
		for i := range more {
			r.kept = append(r.kept, slab[i*size:][:size])
		}
	}
	return nil
}

// stateOf returns the recurrent states of a slot.
func (r *rank) stateOf(slot int) []byte {
	if slot >= r.slots {
		return r.kept[slot-r.slots]
	}
	n := r.s.Bytes[lowering.State]
	return r.states[int64(slot)*n:][:n]
}

// rank finds a rank of this process by its number.
func (m *machine) rank(number int) *rank { return m.ranks[number-m.ranks[0].s.World()] }

// ClearSlot makes the states of a slot zero.
func (m *machine) ClearSlot(slot int) error {
	for _, r := range m.ranks {
		clear(r.stateOf(slot))
	}
	return nil
}

// CopySlot copies states.
func (m *machine) CopySlot(from, to int) error {
	for _, r := range m.ranks {
		copy(r.stateOf(to), r.stateOf(from))
	}
	return nil
}

// ReadSlot copies out of states.
func (m *machine) ReadSlot(rank, slot int, at int64, to []byte) error {
	copy(to, m.rank(rank).stateOf(slot)[at:])
	return nil
}

// WriteSlot copies into states.
func (m *machine) WriteSlot(rank, slot int, at int64, from []byte) error {
	copy(m.rank(rank).stateOf(slot)[at:], from)
	return nil
}

// GrowPages makes KV pages.
func (m *machine) GrowPages(n int) error {
	for _, r := range m.ranks {
		more := int64(n - len(r.pages.Memory))
		slab := roomy(r.pageBytes * more)
		for i := range more {
			r.pages.Memory = append(r.pages.Memory, slab[i*r.pageBytes:][:r.pageBytes])
		}
	}
	return nil
}

// CopyRows copies rows of all caches to another page.
func (m *machine) CopyRows(from state.PageRows, page int32) error {
	for _, r := range m.ranks {
		for i := range r.s.Buffers {
			if r.s.Buffers[i].Space == lowering.Cache {
				copy(r.inRows(i, state.PageRows{Page: page, First: from.First, N: from.N}), r.inRows(i, from))
			}
		}
	}
	return nil
}

// inRows are the bytes that a cache has in some rows.
func (r *rank) inRows(buffer int, x state.PageRows) []byte {
	n := int(r.s.Buffers[buffer].Bytes)
	return r.pages.Memory[x.Page][r.inPage[buffer]+x.First*n:][:x.N*n]
}

// ReadRows copies out of a cache.
func (m *machine) ReadRows(rank, buffer int, rows []state.PageRows, to []byte) error {
	for _, x := range rows {
		to = to[copy(to, m.rank(rank).inRows(buffer, x)):]
	}
	return nil
}

// WriteRows copies into a cache.
func (m *machine) WriteRows(rank, buffer int, rows []state.PageRows, from []byte) error {
	for _, x := range rows {
		from = from[copy(m.rank(rank).inRows(buffer, x), from):]
	}
	return nil
}

// SlotMemory is a rank's states of a slot.
func (m *machine) SlotMemory(rank, slot int) []byte { return m.rank(rank).stateOf(slot) }

// PageMemory is a rank's page.
func (m *machine) PageMemory(rank int, page int32) []byte { return m.rank(rank).pages.Memory[page] }

// ReadPage copies out of a page.
func (m *machine) ReadPage(rank int, page int32, at int64, to []byte) error {
	copy(to, m.PageMemory(rank, page)[at:])
	return nil
}

// WritePage copies into a page.
func (m *machine) WritePage(rank int, page int32, at int64, from []byte) error {
	copy(m.PageMemory(rank, page)[at:], from)
	return nil
}
