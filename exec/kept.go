package exec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/krait-ml/krait/lowering"
)

// KeptStates is what a sequence keeps between steps, but for the rows of its caches, in
// the memory of the engine's device. Whoever has it frees it.
type KeptStates struct {
	Tokens int   // that the sequence was given
	places *pool // nil: there are no states
	place  int32 // see Engine.keptSlot
	bytes  int64
	freed  bool
}

// KeptRows is what the caches have of some tokens of a sequence: the pages that the
// sequence has them in, which nobody writes as long as others have them too. Whoever
// has it frees it.
type KeptRows struct {
	From, To int // the first token, and the one after the last
	pool     *pool
	pages    []keptPage // in order; there may be several for the same tokens
	bytes    int64      // per token
	freed    bool
}

// keptPage is a page that has tokens of a sequence from one on. Of those up to one the
// rows are taken that earlier pages do not have.
type keptPage struct {
	page     int32
	from, to int
}

// StateBytes is what [KeptStates] take, and RowBytes what [KeptRows] take per token.
func (e *Engine) StateBytes() (n int64) {
	for _, s := range e.schedules {
		n += s.Bytes[lowering.State]
	}
	return n
}

// RowBytes is what the caches of all ranks have of a token.
func (e *Engine) RowBytes() (n int64) {
	for _, h := range e.caches() {
		n += int64(h.bytes(1))
	}
	return n
}

// caches lists what the ranks hold of caches.
func (e *Engine) caches() (list []*held) {
	for k := range e.states {
		for j := range e.states[k].held {
			if h := &e.states[k].held[j]; h.cache {
				list = append(list, h)
			}
		}
	}
	return list
}

// ofRanks lists a state of each rank that has some: its run has all of the rank's.
func (e *Engine) ofRanks() (list []*held) {
	for k := range e.states {
		for j := range e.states[k].held {
			h := &e.states[k].held[j]
			if h.run > 0 && !slices.ContainsFunc(list, func(x *held) bool { return x.rank == h.rank }) {
				list = append(list, h)
			}
		}
	}
	return list
}

// KeepStates copies the states of a sequence, on the device, by one copy per rank.
func (e *Engine) KeepStates(slot int) (*KeptStates, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return nil, err
	}
	s, err := e.newKept(e.slots.tokens[i])
	if err != nil || s.places == nil {
		return s, err
	}
	if err := e.machine.Copy(i, e.keptSlot(s)); err != nil {
		s.Free()
		return nil, err
	}
	return s, nil
}

// newKept has a slot for states after so many tokens.
func (e *Engine) newKept(tokens int) (*KeptStates, error) {
	s := &KeptStates{Tokens: tokens, bytes: e.StateBytes()}
	if s.bytes == 0 {
		return s, nil
	}
	var err error
	if s.place, err = e.place(); err != nil {
		return nil, err
	}
	s.places = e.kept
	return s, nil
}

// KeepRows keeps what the caches have of some tokens of a sequence, and copies nothing.
func (e *Engine) KeepRows(slot, from, to int) (*KeptRows, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	i, err := e.slots.whole(slot)
	if err != nil {
		return nil, err
	}
	if from < 0 || to < from || to > e.slots.tokens[i] {
		return nil, fmt.Errorf("tokens %d to %d of a sequence of %d", from, to, e.slots.tokens[i])
	}
	r := e.newRows(from, to)
	for _, x := range e.rowsOf(i, from, to) {
		e.pages.share(x.Page)
		begin := from / e.pages.tokens * e.pages.tokens
		r.pages = append(r.pages, keptPage{x.Page, begin, begin + x.First + x.N})
		from = begin + e.pages.tokens
	}
	return r, nil
}

func (e *Engine) newRows(from, to int) *KeptRows {
	return &KeptRows{From: from, To: to, pool: e.pages, bytes: e.RowBytes()}
}

// Put lets the sequence of a slot go on from what was kept in this engine: states, and
// rows of all tokens before, in order, whose pages it shares. Without states s may be
// nil. What was kept stays so. After an error in the middle, the sequence must be freed
// or reset.
func (e *Engine) Put(slot int, s *KeptStates, rows ...*KeptRows) error {
	if err := e.lock(); err != nil {
		return err
	}
	defer e.mu.Unlock()
	i, err := e.slots.find(slot)
	if err != nil {
		return err
	}
	if s == nil && e.StateBytes() > 0 {
		return errors.New("rows without the states after them")
	}
	at := 0
	for _, r := range rows {
		if r.From != at {
			return fmt.Errorf("rows of tokens %d to %d are kept where token %d is next", r.From, r.To, at)
		}
		at = r.To
	}
	if s == nil {
		s = &KeptStates{Tokens: at}
	}
	if at != s.Tokens && len(e.caches()) > 0 {
		return fmt.Errorf("states after %d tokens, and rows of %d", s.Tokens, at)
	}
	if err := e.fitsContext(s.Tokens); err != nil {
		return err
	}
	e.slots.state[i], e.slots.tokens[i] = broken, s.Tokens // until all of it is there
	if s.places != nil {
		if err := e.machine.Copy(e.keptSlot(s), i); err != nil {
			return err
		}
	}
	if err := e.putRows(i, rows); err != nil {
		return err
	}
	e.slots.state[i] = taken
	return nil
}

// putRows gives a slot the pages that were kept.
func (e *Engine) putRows(slot int, rows []*KeptRows) error {
	old := e.slots.pages[slot]
	e.slots.pages[slot] = nil
	defer func() { // which may be among those that were kept
		for _, page := range old {
			e.pages.drop(page)
		}
	}()
	var all []keptPage
	for _, r := range rows {
		all = append(all, r.pages...)
	}
	for len(all) > 0 {
		index := (all[0].to - 1) / e.pages.tokens
		n := 1
		for n < len(all) && (all[n].to-1)/e.pages.tokens == index {
			n++
		}
		page, err := e.join(all[:n], index*e.pages.tokens)
		if err != nil {
			return err
		}
		e.slots.pages[slot] = append(e.slots.pages[slot], page)
		all = all[n:]
	}
	return nil
}

// join is a page that has what pages for the same tokens have, from one on. The last
// has it all, if it came from a sequence that went on from what the others have; what comes
// from the host may begin in its middle.
func (e *Engine) join(list []keptPage, from int) (int32, error) {
	last := &list[len(list)-1]
	if last.from <= from {
		e.pages.share(last.page)
		return last.page, nil
	}
	page, err := e.takePage()
	if err != nil {
		return 0, err
	}
	at := from
	for _, k := range list {
		if err := e.machine.CopyRows(Rows{k.page, at - from, k.to - at}, page); err != nil {
			e.pages.drop(page)
			return 0, err
		}
		at = k.to
	}
	return page, nil
}

// Split cuts rows in those before a token and the rest, which are there in their place.
// A page of both is kept by both.
func (r *KeptRows) Split(at int) (before, rest *KeptRows) {
	before = &KeptRows{From: r.From, To: at, pool: r.pool, bytes: r.bytes}
	rest = &KeptRows{From: at, To: r.To, pool: r.pool, bytes: r.bytes}
	begin := r.From
	for _, k := range r.pages {
		if begin < at {
			r.pool.share(k.page)
			before.pages = append(before.pages, keptPage{k.page, k.from, min(k.to, at)})
		}
		if k.to > at {
			r.pool.share(k.page)
			rest.pages = append(rest.pages, k)
		}
		begin = k.to
	}
	r.Free()
	return before, rest
}

// Share is the rows before a token once more: both hold them, and each is freed by itself.
func (r *KeptRows) Share(at int) *KeptRows {
	out := &KeptRows{From: r.From, To: at, pool: r.pool, bytes: r.bytes}
	begin := r.From
	for _, k := range r.pages {
		if begin < at {
			r.pool.share(k.page)
			out.pages = append(out.pages, keptPage{k.page, k.from, min(k.to, at)})
		}
		begin = k.to
	}
	return out
}

// Join is rows, and those that follow, in place of the two.
func (r *KeptRows) Join(next *KeptRows) *KeptRows {
	out := &KeptRows{From: r.From, To: next.To, pool: cmp.Or(r.pool, next.pool), bytes: max(r.bytes, next.bytes)}
	upper := r.pages
	if len(next.pages) > 0 { // whose first page may have what the last ones here have
		n, first := next.pool.tokens, next.pages[0]
		for len(upper) > 0 {
			if last := upper[len(upper)-1]; (last.to-1)/n != (first.to-1)/n || last.from < first.from {
				break
			}
			upper = upper[:len(upper)-1]
		}
	}
	out.pages = slices.Concat(upper, next.pages)
	for _, k := range out.pages {
		out.pool.share(k.page)
	}
	r.Free()
	next.Free()
	return out
}

// Free gives back what is held.
func (s *KeptStates) Free() {
	if s.freed {
		panic("BUG: states are freed twice")
	}
	if s.places != nil {
		s.places.drop(s.place)
	}
	s.freed, s.places, s.bytes = true, nil, 0
}

// Free gives back what is held: pages that nobody else has.
func (r *KeptRows) Free() {
	if r.freed {
		panic("BUG: rows are freed twice")
	}
	for _, k := range r.pages {
		r.pool.drop(k.page)
	}
	r.freed, r.pages, r.bytes = true, nil, 0
}

// Bytes is what is held.
func (s *KeptStates) Bytes() int64 { return s.bytes }

// Bytes is what the rows take. They may lie in pages that have others', or nothing, beside.
func (r *KeptRows) Bytes() int64 { return int64(r.To-r.From) * r.bytes }
