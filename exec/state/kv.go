package state

import (
	"cmp"
	"fmt"
	"slices"
)

// DeviceKV is the KV cache of tokens [From, To) of a sequence, on the device: references to the
// pages that the sequence has them in, which are not written while they are shared. Its owner frees
// it.
type DeviceKV struct {
	From, To int
	pool     *pool
	pages    []pageRef // in order; there may be several for the same tokens
	bytes    int64     // of a token
	freed    bool
}

// pageRef is a page that has the rows of some tokens of a sequence from token from on. Those before
// token to count that earlier pages do not have.
type pageRef struct {
	page     int32
	from, to int
}

func (s *Store) newKV(from, to int) *DeviceKV {
	return &DeviceKV{From: from, To: to, pool: s.t.pages, bytes: s.KVBytes()}
}

// ShareKV references the KV pages of tokens [from, to) of a sequence. It copies nothing.
func (s *Store) ShareKV(slot, from, to int) (*DeviceKV, error) {
	i, err := s.lockSlot((*slots).whole, slot)
	if err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	if n := s.t.slots.tokens[i]; from < 0 || to < from || to > n {
		return nil, fmt.Errorf("tokens %d to %d of a sequence of %d", from, to, n)
	}
	kv := s.newKV(from, to)
	n := s.t.pages.tokens
	for _, x := range s.t.pageRows(i, from, to) {
		s.t.pages.share(x.Page)
		begin := from / n * n
		kv.pages = append(kv.pages, pageRef{x.Page, begin, begin + x.First + x.N})
		from = begin + n
	}
	return kv, nil
}

// allocPages gives a KV cache pages of its own.
func (s *Store) allocPages(kv *DeviceKV) error {
	n := s.t.pages.tokens
	for at := kv.From; at < kv.To; {
		page, err := s.t.allocPage()
		if err != nil {
			return err
		}
		end := min(kv.To, (at/n+1)*n)
		kv.pages = append(kv.pages, pageRef{page, at, end})
		at = end
	}
	return nil
}

// setPages replaces the block table of a slot.
func (t *Table) setPages(slot int, kv []*DeviceKV) error {
	old := t.slots.pages[slot]
	t.slots.pages[slot] = nil
	defer func() { t.pages.drop(old...) }() // they may be among the new ones
	var all []pageRef
	for _, x := range kv {
		all = append(all, x.pages...)
	}
	for len(all) > 0 {
		index := (all[0].to - 1) / t.pages.tokens
		n := 1
		for n < len(all) && (all[n].to-1)/t.pages.tokens == index {
			n++
		}
		page, err := t.mergePages(all[:n], index*t.pages.tokens)
		if err != nil {
			return err
		}
		t.slots.pages[slot] = append(t.slots.pages[slot], page)
		all = all[n:]
	}
	return nil
}

// mergePages returns a page with the rows of all pages of the same tokens, from token from on. The
// last page has them all if its sequence went on from the others; a page that came from the host
// may begin in the middle, and then the rows are copied to a new page.
func (t *Table) mergePages(list []pageRef, from int) (int32, error) {
	last := &list[len(list)-1]
	if last.from <= from {
		t.pages.share(last.page)
		return last.page, nil
	}
	page, err := t.allocPage()
	if err != nil {
		return 0, err
	}
	at := from
	for _, x := range list {
		if err := t.memory.CopyRows(PageRows{x.page, at - from, x.to - at}, page); err != nil {
			t.pages.drop(page)
			return 0, err
		}
		at = x.to
	}
	return page, nil
}

// Prefix references the tokens before token at once more; the result is freed on its own.
func (kv *DeviceKV) Prefix(at int) *DeviceKV {
	out := &DeviceKV{From: kv.From, To: at, pool: kv.pool, bytes: kv.bytes}
	begin := kv.From
	for _, x := range kv.pages {
		if begin < at {
			kv.pool.share(x.page)
			out.pages = append(out.pages, pageRef{x.page, x.from, min(x.to, at)})
		}
		begin = x.to
	}
	return out
}

// Split replaces a KV cache by that of the tokens before token at and that of the rest. Both
// reference a page that has tokens of both.
func (kv *DeviceKV) Split(at int) (before, rest *DeviceKV) {
	before = kv.Prefix(at)
	rest = &DeviceKV{From: at, To: kv.To, pool: kv.pool, bytes: kv.bytes}
	for _, x := range kv.pages {
		if x.to > at {
			kv.pool.share(x.page)
			rest.pages = append(rest.pages, x)
		}
	}
	kv.Free()
	return before, rest
}

// Join replaces a KV cache and that of the following tokens by one of both.
func (kv *DeviceKV) Join(next *DeviceKV) *DeviceKV {
	out := &DeviceKV{From: kv.From, To: next.To, pool: cmp.Or(kv.pool, next.pool), bytes: max(kv.bytes, next.bytes)}
	upper := kv.pages
	if len(next.pages) > 0 { // whose first page may have the rows of the last ones here
		n, first := next.pool.tokens, next.pages[0]
		for len(upper) > 0 {
			if last := upper[len(upper)-1]; (last.to-1)/n != (first.to-1)/n || last.from < first.from {
				break
			}
			upper = upper[:len(upper)-1]
		}
	}
	out.pages = slices.Concat(upper, next.pages)
	for _, x := range out.pages {
		out.pool.share(x.page)
	}
	kv.Free()
	next.Free()
	return out
}

// Bytes is the size of the tokens' rows, over all ranks. Their pages may be larger, or shared.
func (kv *DeviceKV) Bytes() int64 { return int64(kv.To-kv.From) * kv.bytes }

// Free drops the references, and frees pages without another.
func (kv *DeviceKV) Free() {
	if kv.freed {
		panic("BUG: a KV cache is freed twice")
	}
	for _, x := range kv.pages {
		kv.pool.drop(x.page)
	}
	kv.freed, kv.pages, kv.bytes = true, nil, 0
}
