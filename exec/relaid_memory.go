package exec

import (
	"cmp"
	"context"

	"github.com/krait-ml/krait/exec/state"
)

// ClearSlot makes the states zero on both sides.
func (r *relaid) ClearSlot(slot int) error {
	err := r.Machine.ClearSlot(slot)
	if slot < len(r.slots) {
		err = cmp.Or(err, r.machines[prefills].ClearSlot(slot))
		r.slots[slot] = [2]bool{true, true}
	}
	return err
}

// CopySlot copies states on decode's side.
func (r *relaid) CopySlot(from, to int) error {
	if err := r.states(decodes, from); err != nil {
		return err
	}
	r.wroteStates(decodes, to)
	return r.Machine.CopySlot(from, to)
}

// ReadSlot copies out of decode's states.
func (r *relaid) ReadSlot(rank, slot int, at int64, to []byte) error {
	if err := r.states(decodes, slot); err != nil {
		return err
	}
	return r.Machine.ReadSlot(rank, slot, at, to)
}

// WriteSlot copies into decode's states.
func (r *relaid) WriteSlot(rank, slot int, at int64, from []byte) error {
	if err := r.states(decodes, slot); err != nil {
		return err
	}
	r.wroteStates(decodes, slot)
	return r.Machine.WriteSlot(rank, slot, at, from)
}

// GrowPages makes pages on both sides.
func (r *relaid) GrowPages(n int) error {
	if err := cmp.Or(r.Machine.GrowPages(n), r.machines[prefills].GrowPages(n)); err != nil {
		return err
	}
	r.pages = append(r.pages, make([][2]int, n-len(r.pages))...)
	return nil
}

// CopyRows copies rows on decode's side.
func (r *relaid) CopyRows(from state.PageRows, page int32) error {
	if err := r.current(page, from); err != nil {
		return err
	}
	r.wroteRows(decodes, page, from.First, from.First+from.N)
	return r.Machine.CopyRows(from, page)
}

// current makes decode's rows of pages current, those that a page has and those that are read.
func (r *relaid) current(page int32, rows ...state.PageRows) error {
	err := r.rows(decodes, page, r.ends[decodes].PageTokens)
	for _, x := range rows {
		err = cmp.Or(err, r.rows(decodes, x.Page, x.First+x.N))
	}
	return err
}

// ReadRows copies out of a cache of decode's side.
func (r *relaid) ReadRows(rank, buffer int, rows []state.PageRows, to []byte) error {
	for _, x := range rows {
		if err := r.current(x.Page); err != nil {
			return err
		}
	}
	return r.Machine.ReadRows(rank, buffer, rows, to)
}

// WriteRows copies into a cache of decode's side.
func (r *relaid) WriteRows(rank, buffer int, rows []state.PageRows, from []byte) error {
	for _, x := range rows {
		if err := r.current(x.Page); err != nil {
			return err
		}
		r.wroteRows(decodes, x.Page, x.First, x.First+x.N)
	}
	return r.Machine.WriteRows(rank, buffer, rows, from)
}

// ReadPage copies out of a page of decode's side.
func (r *relaid) ReadPage(rank int, page int32, at int64, to []byte) error {
	if err := r.current(page); err != nil {
		return err
	}
	return r.Machine.ReadPage(rank, page, at, to)
}

// WritePage copies into a page of decode's side, which is current as a whole then.
func (r *relaid) WritePage(rank int, page int32, at int64, from []byte) error {
	if err := r.current(page); err != nil {
		return err
	}
	r.wroteRows(decodes, page, 0, r.ends[decodes].PageTokens)
	return r.Machine.WritePage(rank, page, at, from)
}

// Replay runs on decode's side.
func (r *relaid) Replay(ctx context.Context, list []state.Replay) error {
	for _, x := range list {
		if err := r.states(decodes, x.Memory); err != nil {
			return err
		}
		r.wroteStates(decodes, x.Memory)
	}
	return r.Machine.Replay(ctx, list)
}

// Collectives counts those of both sides, prefill's first.
func (r *relaid) Collectives() []CollectiveCount {
	return append(r.machines[prefills].Collectives(), r.Machine.Collectives()...)
}

// ResetCounts lets Collectives count from 0 again.
func (r *relaid) ResetCounts() {
	for _, m := range r.machines {
		m.ResetCounts()
	}
}

// Close closes both.
func (r *relaid) Close() {
	for _, m := range r.machines {
		m.Close()
	}
}
