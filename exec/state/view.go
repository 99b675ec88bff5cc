package state

import (
	"fmt"

	"github.com/krait-ml/krait/lowering"
)

// View is the device memory of a sequence's state, by rank and region, in the numbering of
// [lowering.Transfer]: region 0 is the rank's recurrent states, region 1+i the KV page of the
// tokens from i pages on. It is valid until the [DeviceState] or [DeviceKV] is freed.
type View struct {
	ranks [][]Region // the states, which may be none, and then the pages
	first int        // the region of the first page
}

// Region is a piece of a rank's memory: the recurrent states of a sequence, or a KV page. Several
// goroutines may use regions, also during steps, if none writes where another reads.
type Region struct {
	store  *Store
	id     uint64
	rank   int
	index  int // of a slot of the machine, or of a page
	page   bool
	size   int64
	memory []byte // nil: only the device reaches it
}

// TransferEnd describes the layout of this engine's states for transfers.
func (s *Store) TransferEnd() (lowering.End, error) {
	k, err := lowering.StateLayoutOf(s.t.schedules)
	return lowering.End{States: k, PageTokens: s.t.pages.tokens}, err
}

// Reserve allocates room for a sequence that comes from elsewhere: recurrent states,
// which are zero, and pages for the tokens from token from on. A [View] writes them, and
// [Store.Resume] gives them to a sequence when they are complete. Their owner frees them.
func (s *Store) Reserve(tokens, from int) (*DeviceState, *DeviceKV, error) {
	if err := s.gate.Lock(); err != nil {
		return nil, nil, err
	}
	defer s.gate.Unlock()
	if from < 0 || tokens < from {
		return nil, nil, fmt.Errorf("room for %d tokens, of which %d are there", tokens, from)
	}
	if err := s.t.CheckContext(tokens); err != nil {
		return nil, nil, err
	}
	d, err := s.allocCopy(tokens)
	if err != nil {
		return nil, nil, err
	}
	kv := s.newKV(from, tokens)
	if d.copies != nil { // the slot has another sequence's states
		err = s.t.memory.ClearSlot(s.copySlot(d))
	}
	if err == nil && s.t.HasCache() {
		err = s.allocPages(kv)
	}
	if err != nil {
		d.Free()
		kv.Free()
		return nil, nil, err
	}
	return d, kv, nil
}

// View returns the memory of states and of a KV cache; either may be nil. The KV cache must have
// one page after another, as [Store.ShareKV] and [Store.Reserve] return it.
func (s *Store) View(d *DeviceState, kv *DeviceKV) (*View, error) {
	if err := s.gate.Lock(); err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	v := &View{ranks: make([][]Region, len(s.t.schedules))}
	var pages []pageRef
	if kv != nil && len(kv.pages) > 0 {
		pages = kv.pages
		v.first = 1 + kv.From/kv.pool.tokens
		for i, x := range pages {
			if (x.to-1)/kv.pool.tokens != v.first-1+i {
				return nil, fmt.Errorf("the KV cache of tokens %d to %d has several pages for the same tokens; resume a sequence from it, and share that one's", kv.From, kv.To)
			}
		}
	}
	for rank, sched := range s.t.schedules {
		list := make([]Region, 1, 1+len(pages))
		if d != nil && d.copies != nil {
			list[0] = s.region(rank, s.copySlot(d), false, sched.Bytes[lowering.State])
		}
		_, size := sched.Page(s.t.pages.tokens)
		for _, x := range pages {
			list = append(list, s.region(rank, int(x.page), true, size))
		}
		v.ranks[rank] = list
	}
	return v, nil
}

func (s *Store) region(rank, index int, page bool, size int64) Region {
	r := Region{store: s, id: uint64(rank)<<32 | uint64(index)<<1, rank: rank, index: index, page: page, size: size}
	m, ok := s.t.memory.(HostMemory)
	switch {
	case page && ok:
		r.memory = m.PageMemory(rank, int32(index))
	case ok:
		r.memory = m.SlotMemory(rank, index)
	}
	if page {
		r.id |= 1
	}
	return r
}

// Region returns a region of a rank.
func (v *View) Region(rank, region int) (*Region, error) {
	if rank < 0 || rank >= len(v.ranks) {
		return nil, fmt.Errorf("there is no rank %d of %d", rank, len(v.ranks))
	}
	list, i := v.ranks[rank], 0
	if region != 0 {
		i = 1 + region - v.first
	}
	if region < 0 || region > 0 && i < 1 || i >= len(list) || list[i].store == nil {
		return nil, fmt.Errorf("rank %d has no region %d", rank, region)
	}
	return &list[i], nil
}

// ID numbers the memory among all of the engine's spare slots and pages. Its content changes
// owners; its address stays.
func (r *Region) ID() uint64 { return r.id }

// Size is the number of bytes.
func (r *Region) Size() int64 { return r.size }

// Direct is the memory itself, n bytes from at on; nil where only the device reaches it.
func (r *Region) Direct(at, n int64) []byte {
	if r.memory == nil {
		return nil
	}
	return r.memory[at:][:n:n]
}

// Read copies bytes out of the region, from at on.
func (r *Region) Read(to []byte, at int64) error {
	return r.use(at, len(to), func(m Memory) error {
		if r.page {
			return m.ReadPage(r.rank, int32(r.index), at, to)
		}
		return m.ReadSlot(r.rank, r.index, at, to)
	})
}

// Write copies bytes into the region, from at on.
func (r *Region) Write(from []byte, at int64) error {
	return r.use(at, len(from), func(m Memory) error {
		if r.page {
			return m.WritePage(r.rank, int32(r.index), at, from)
		}
		return m.WriteSlot(r.rank, r.index, at, from)
	})
}

// use locks the store for a copy of n bytes from at on.
func (r *Region) use(at int64, n int, f func(Memory) error) error {
	if at < 0 || at > r.size-int64(n) {
		return fmt.Errorf("%d bytes from %d on, of a region of %d", n, at, r.size)
	}
	if err := r.store.gate.Lock(); err != nil {
		return err
	}
	defer r.store.gate.Unlock()
	return f(r.store.t.memory)
}
