package exec

import (
	"fmt"

	"github.com/krait-ml/krait/lowering"
)

// View is the memory of what is kept of a sequence, by rank and region, as
// [lowering.Transfer] lists what moves: region 0 is the rank's states, region 1+i the page
// of the tokens from i pages on. It is good as long as what it shows is not freed.
type View struct {
	ranks [][]Region // the states, which may be none, and then the pages
	first int        // the region of the first page
}

// Region is memory of a rank: of the states of a sequence, or a page of caches. Several
// goroutines may use regions, also while the engine runs, if none writes where another
// reads.
type Region struct {
	engine *Engine
	id     uint64
	rank   int
	place  int // a slot of the machine, or a page
	page   bool
	size   int64
	memory []byte // nil: only the device reaches it
}

// Hosted is a [Machine] whose memory is the process's.
type Hosted interface {
	// SlotMemory is the states that a rank has in a slot, and PageMemory a page of its
	// caches, until Close.
	SlotMemory(rank, slot int) []byte
	PageMemory(rank int, page int32) []byte
}

// End says how the engine keeps sequences.
func (e *Engine) End() (lowering.End, error) {
	k, err := lowering.KeepsOf(e.schedules)
	return lowering.End{Keeps: k, PageTokens: e.pages.tokens}, err
}

// Room makes room for what comes from elsewhere of a sequence of so many tokens: states,
// which are zero, and rows of the tokens from one on, in pages of their own. They are
// written through a [View], and given to sequences by [Engine.Put] when all of them are
// there. Whoever has them frees them.
func (e *Engine) Room(tokens, from int) (*KeptStates, *KeptRows, error) {
	if err := e.lock(); err != nil {
		return nil, nil, err
	}
	defer e.mu.Unlock()
	if from < 0 || tokens < from {
		return nil, nil, fmt.Errorf("room for %d tokens, of which %d are there", tokens, from)
	}
	if err := e.fitsContext(tokens); err != nil {
		return nil, nil, err
	}
	s, err := e.newKept(tokens)
	if err != nil {
		return nil, nil, err
	}
	r := e.newRows(from, tokens)
	if s.places != nil { // somebody else's are there
		err = e.machine.Clear(e.keptSlot(s))
	}
	if err == nil && e.cached() {
		err = e.ownPages(r)
	}
	if err != nil {
		s.Free()
		r.Free()
		return nil, nil, err
	}
	return s, r, nil
}

// View shows what is kept of a sequence, states and rows; either may be nil. Rows must be as
// [Engine.KeepRows] and [Engine.Room] give them, a page after another.
func (e *Engine) View(s *KeptStates, r *KeptRows) (*View, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	v := &View{ranks: make([][]Region, len(e.schedules))}
	var pages []keptPage
	if r != nil && len(r.pages) > 0 {
		pages = r.pages
		v.first = 1 + r.From/r.pool.tokens
		for i, k := range pages {
			if (k.to-1)/r.pool.tokens != v.first-1+i {
				return nil, fmt.Errorf("rows of tokens %d to %d are in several pages for the same tokens; put them into a sequence, and keep that one's", r.From, r.To)
			}
		}
	}
	for rank, sched := range e.schedules {
		list := make([]Region, 1, 1+len(pages))
		if s != nil && s.places != nil {
			list[0] = e.region(rank, e.keptSlot(s), false, sched.Bytes[lowering.State])
		}
		_, size := sched.Page(e.pages.tokens)
		for _, k := range pages {
			list = append(list, e.region(rank, int(k.page), true, size))
		}
		v.ranks[rank] = list
	}
	return v, nil
}

func (e *Engine) region(rank, place int, page bool, size int64) Region {
	r := Region{engine: e, id: uint64(rank)<<32 | uint64(place)<<1, rank: rank, place: place, page: page, size: size}
	m, hosted := e.machine.(Hosted)
	switch {
	case page && hosted:
		r.memory = m.PageMemory(rank, int32(place))
	case hosted:
		r.memory = m.SlotMemory(rank, place)
	}
	if page {
		r.id |= 1
	}
	return r
}

// Region finds a region of a rank.
func (v *View) Region(rank, region int) (*Region, error) {
	if rank < 0 || rank >= len(v.ranks) {
		return nil, fmt.Errorf("there is no rank %d of %d", rank, len(v.ranks))
	}
	list, i := v.ranks[rank], 0
	if region != 0 {
		i = 1 + region - v.first
	}
	if region < 0 || region > 0 && i < 1 || i >= len(list) || list[i].engine == nil {
		return nil, fmt.Errorf("nothing is kept in region %d of rank %d", region, rank)
	}
	return &list[i], nil
}

// ID is the number of the memory, of all that the engine has for kept states and pages: who
// has it changes, and where it lies does not.
func (r *Region) ID() uint64 { return r.id }

// Size is how many bytes it has.
func (r *Region) Size() int64 { return r.size }

// Direct is the memory itself, n bytes from one on; nil where only the device reaches it.
func (r *Region) Direct(at, n int64) []byte {
	if r.memory == nil {
		return nil
	}
	return r.memory[at:][:n:n]
}

// Read copies bytes from one on.
func (r *Region) Read(to []byte, at int64) error {
	return r.use(at, len(to), func(m Machine) error {
		if r.page {
			return m.ReadPage(r.rank, int32(r.place), at, to)
		}
		return m.Read(r.rank, r.place, at, to)
	})
}

// Write copies bytes to one on.
func (r *Region) Write(from []byte, at int64) error {
	return r.use(at, len(from), func(m Machine) error {
		if r.page {
			return m.WritePage(r.rank, int32(r.place), at, from)
		}
		return m.Write(r.rank, r.place, at, from)
	})
}

// use has the machine for a copy of n bytes from one on.
func (r *Region) use(at int64, n int, copies func(Machine) error) error {
	if at < 0 || at > r.size-int64(n) {
		return fmt.Errorf("%d bytes from %d on, of a region of %d", n, at, r.size)
	}
	if err := r.engine.lock(); err != nil {
		return err
	}
	defer r.engine.mu.Unlock()
	return copies(r.engine.machine)
}
