package exec

import (
	"context"

	"github.com/krait-ml/krait/exec/state"
)

// GrowSlots makes spare slots on all replicas.
func (r *replicas) GrowSlots(n int) error {
	err := r.Machine.GrowSlots(n)
	for err == nil && len(r.slots) < n {
		r.slots = append(r.slots, r.all())
	}
	return err
}

// ClearSlot makes the states of a slot zero on all replicas.
func (r *replicas) ClearSlot(slot int) error {
	r.slots[slot] = r.all()
	return r.Machine.ClearSlot(slot)
}

// CopySlot copies states where they are current.
func (r *replicas) CopySlot(from, to int) error {
	r.slots[to] = r.slots[from]
	return r.Machine.CopySlot(from, to)
}

// ReadSlot copies out of states.
func (r *replicas) ReadSlot(rank, slot int, at int64, to []byte) error {
	return r.Machine.ReadSlot(r.holder(slot)*r.ranks+rank, slot, at, to)
}

// WriteSlot copies into states.
func (r *replicas) WriteSlot(rank, slot int, at int64, from []byte) error {
	x := r.holder(slot)
	r.slots[slot] = 1 << x
	return r.Machine.WriteSlot(x*r.ranks+rank, slot, at, from)
}

// GrowPages makes KV pages on all replicas.
func (r *replicas) GrowPages(n int) error {
	err := r.Machine.GrowPages(n)
	for err == nil && len(r.pages) < n {
		r.pages = append(r.pages, make([]int, r.n))
	}
	return err
}

// CopyRows copies rows of all caches where they are current.
func (r *replicas) CopyRows(from state.PageRows, page int32) error {
	for x, n := range r.pages[from.Page] {
		to := &r.pages[page][x]
		if end := from.First + from.N; n >= end && *to >= from.First {
			*to = end
		} else {
			*to = min(*to, from.First)
		}
	}
	return r.Machine.CopyRows(from, page)
}

// ReadRows copies out of a cache.
func (r *replicas) ReadRows(rank, buffer int, rows []state.PageRows, to []byte) error {
	all := 0
	for _, x := range rows {
		all += x.N
	}
	for _, x := range rows {
		n := len(to) / all * x.N
		if err := r.Machine.ReadRows(r.longest(x.Page)*r.ranks+rank, buffer, []state.PageRows{x}, to[:n]); err != nil {
			return err
		}
		to, all = to[n:], all-x.N
	}
	return nil
}

// WriteRows copies into a cache.
func (r *replicas) WriteRows(rank, buffer int, rows []state.PageRows, from []byte) error {
	for _, x := range rows {
		if err := r.rows(0, x.Page, x.First); err != nil {
			return err
		}
		r.wrote(0, x.Page, x.First, x.First+x.N)
	}
	return r.Machine.WriteRows(rank, buffer, rows, from)
}

// ReadPage copies out of a page.
func (r *replicas) ReadPage(rank int, page int32, at int64, to []byte) error {
	return r.Machine.ReadPage(r.longest(page)*r.ranks+rank, page, at, to)
}

// WritePage copies into a page: any of its rows.
func (r *replicas) WritePage(rank int, page int32, at int64, from []byte) error {
	if err := r.rows(0, page, r.pageTokens); err != nil {
		return err
	}
	r.wrote(0, page, 0, r.pageTokens)
	return r.Machine.WritePage(rank, page, at, from)
}

// Replay runs recurrences again on all replicas; the states are current on that of the trial.
func (r *replicas) Replay(ctx context.Context, list []state.Replay) error {
	for _, x := range list {
		r.slots[x.Memory] = 1 << r.spares[x.Spare]
	}
	return r.Machine.Replay(ctx, list)
}
