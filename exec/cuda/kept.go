package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
)

// GrowSlots allocates slots for snapshots.
func (m *machine) GrowSlots(n int) error {
	return m.eachRank(func(r *rank) error {
		err := r.slab(&r.kept, n-m.slots, r.s.Bytes[lowering.State])
		if err != nil {
			return fmt.Errorf("states that are kept: %w", err)
		}
		return nil
	})
}

// GrowPages allocates KV pages.
func (m *machine) GrowPages(n int) error {
	return m.eachRank(func(r *rank) error {
		if err := r.slab(&r.pages, n, r.pageBytes); err != nil {
			return fmt.Errorf("pages of caches: %w", err)
		}
		return nil
	})
}

// rank finds a rank of this process by its number.
func (m *machine) rank(number int) *rank { return m.ranks[number-m.ranks[0].s.Rank] }

// eachRank runs f for all ranks.
func (m *machine) eachRank(f func(r *rank) error) error {
	return m.each(func(g *gpu) error {
		for _, r := range g.ranks {
			if err := f(r); err != nil {
				return r.where(err)
			}
		}
		return nil
	})
}

// slab allocates pieces of memory up to n, in one allocation.
func (r *rank) slab(list *[]driver.Ptr, n int, bytes int64) error {
	more := n - len(*list)
	if more <= 0 { // another rank failed when this one made them
		return nil
	}
	at, err := r.alloc(bytes * int64(more))
	if err != nil {
		return err
	}
	r.slabs = append(r.slabs, at)
	for i := range more {
		*list = append(*list, at+driver.Ptr(int64(i)*bytes))
	}
	return nil
}

// stateOf is the address of a slot's states.
func (r *rank) stateOf(slot int) driver.Ptr {
	if slot >= r.machine.slots {
		return r.kept[slot-r.machine.slots]
	}
	return r.states + driver.Ptr(int64(slot)*r.s.Bytes[lowering.State])
}

// ClearSlot makes the states of a slot zero.
func (m *machine) ClearSlot(slot int) error {
	return m.eachState(func(r *rank, bytes int64) error { return r.compute.Fill(r.stateOf(slot), 0, bytes) })
}

// CopySlot copies the states of a slot to another.
func (m *machine) CopySlot(from, to int) error {
	return m.eachState(func(r *rank, bytes int64) error {
		return r.compute.Copy(r.stateOf(to), r.stateOf(from), bytes)
	})
}

// eachState runs f for the ranks that have states, of that many bytes in a slot, and waits for it.
func (m *machine) eachState(f func(r *rank, bytes int64) error) error {
	return m.eachRank(func(r *rank) error {
		n := r.s.Bytes[lowering.State]
		if n == 0 {
			return nil
		}
		if err := f(r, n); err != nil {
			return err
		}
		return r.compute.Synchronize()
	})
}

// ReadSlot copies bytes of states to the host.
func (m *machine) ReadSlot(rank, slot int, at int64, to []byte) error {
	r := m.rank(rank)
	return r.copyOut(to, r.stateOf(slot)+driver.Ptr(at))
}

// WriteSlot copies bytes from the host into states.
func (m *machine) WriteSlot(rank, slot int, at int64, from []byte) error {
	r := m.rank(rank)
	return r.copyIn(r.stateOf(slot)+driver.Ptr(at), from)
}

// ReadPage copies bytes of a KV page to the host.
func (m *machine) ReadPage(rank int, page int32, at int64, to []byte) error {
	r := m.rank(rank)
	return r.copyOut(to, r.pages[page]+driver.Ptr(at))
}

// WritePage copies bytes from the host into a KV page.
func (m *machine) WritePage(rank int, page int32, at int64, from []byte) error {
	r := m.rank(rank)
	return r.copyIn(r.pages[page]+driver.Ptr(at), from)
}

func (r *rank) copyOut(to []byte, from driver.Ptr) error {
	if len(to) == 0 {
		return nil
	}
	return r.copies(func() error { return r.compute.CopyOut(to, from) })
}

func (r *rank) copyIn(to driver.Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return r.copies(func() error { return r.compute.CopyIn(to, from) })
}

// copies runs copies on the rank's GPU, and waits for them.
func (r *rank) copies(f func() error) error {
	return r.gpu.do(func() error {
		if err := f(); err != nil {
			return err
		}
		return r.compute.Synchronize()
	})
}

// inRows returns where rows of a cache begin in a page, and their bytes.
func (r *rank) inRows(buffer int, x state.PageRows) (at driver.Ptr, n int64) {
	size := r.s.Buffers[buffer].Bytes
	return r.pages[x.Page] + driver.Ptr(int64(r.inPage[buffer])+int64(x.First)*size), int64(x.N) * size
}

// CopyRows copies rows of all caches to another page.
func (m *machine) CopyRows(from state.PageRows, page int32) error {
	return m.eachRank(func(r *rank) error {
		for i := range r.s.Buffers {
			if r.s.Buffers[i].Space != lowering.Cache {
				continue
			}
			at, n := r.inRows(i, from)
			to, _ := r.inRows(i, state.PageRows{Page: page, First: from.First, N: from.N})
			if n == 0 {
				continue
			}
			if err := r.compute.Copy(to, at, n); err != nil {
				return err
			}
		}
		return r.compute.Synchronize()
	})
}

// ReadRows copies rows of a cache to the host.
func (m *machine) ReadRows(rank, buffer int, rows []state.PageRows, to []byte) error {
	r := m.rank(rank)
	return r.eachRun(buffer, rows, to, func(at driver.Ptr, part []byte) error { return r.compute.CopyOut(part, at) })
}

// WriteRows copies rows from the host into a cache.
func (m *machine) WriteRows(rank, buffer int, rows []state.PageRows, from []byte) error {
	r := m.rank(rank)
	return r.eachRun(buffer, rows, from, func(at driver.Ptr, part []byte) error { return r.compute.CopyIn(at, part) })
}

// eachRun lets f copy each run of rows of a cache, to or from its part of the data.
func (r *rank) eachRun(buffer int, rows []state.PageRows, data []byte, f func(at driver.Ptr, part []byte) error) error {
	return r.copies(func() error {
		for _, x := range rows {
			at, n := r.inRows(buffer, x)
			if n == 0 {
				continue
			}
			if err := f(at, data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	})
}
