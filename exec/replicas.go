package exec

import (
	"slices"

	"github.com/krait-ml/krait/lowering"
)

// replicas are the copies of a model that divide the sequences of an engine, by their slots. All
// ranks are of one machine, with the same slots and KV pages. The store knows those of one replica.
// States and pages move to a replica when a batch needs them there:
//
//   - A slot's states are current on some replicas: on all when they are zero, on one after a step.
//   - A KV page has current rows on each replica, the first ones.
//   - A call of [state.Memory] reads where it is current, and writes to the first replica.
type replicas struct {
	Machine
	n, ranks   int // how many, and the ranks of each
	pageTokens int
	slotBytes  []int64 // by rank of a replica
	pageBytes  []int64
	slots      []uint64 // by slot of the machine: a bit for each replica where its states are current
	spares     []int    // by spare: the replica of its trial
	pages      [][]int  // by page and replica: how many rows are current
}

// newReplicas joins the replicas of a machine, whose slots are zero. The schedules are of one.
func newReplicas(m Machine, n int, one []*lowering.Schedule, slots, spares, pageTokens int) *replicas {
	r := &replicas{Machine: m, n: n, ranks: len(one), pageTokens: pageTokens, spares: make([]int, spares)}
	r.slots = slices.Repeat([]uint64{r.all()}, slots)
	for _, s := range one {
		_, page := s.Page(pageTokens)
		r.slotBytes, r.pageBytes = append(r.slotBytes, s.Bytes[lowering.State]), append(r.pageBytes, page)
	}
	return r
}

func (r *replicas) all() uint64 { return 1<<r.n - 1 }

// number is how many there are.
func (r *replicas) number() int {
	if r == nil {
		return 1
	}
	return r.n
}

// home is the replica of a slot's sequence.
func (r *replicas) home(slot int) int { return slot % r.number() }

// enter makes current what a batch reads of its sequences, and notes what it writes.
func (r *replicas) enter(list []Sequence, w *Work) error {
	trials := w.Trials
	for i := range list {
		q := &list[i]
		from := q.memory
		if q.Trial {
			r.spares[trials[0].Spare] = w.Replica
			from, trials = trials[0].From, trials[1:]
		}
		if err := r.states(w.Replica, from); err != nil {
			return err
		}
		r.slots[q.memory] = 1 << w.Replica
		if len(w.BlockTables) > 0 {
			if err := r.enterPages(w.Replica, w.BlockTables[i], q.past, q.past+q.len()); err != nil {
				return err
			}
		}
	}
	return nil
}

// enterPages is enter for the pages of a sequence, which gets rows [past, end).
func (r *replicas) enterPages(x int, table []int32, past, end int) error {
	n := r.pageTokens
	for i := range (end + n - 1) / n {
		had, has := min(past-i*n, n), min(end-i*n, n)
		if err := r.rows(x, table[i], had); err != nil {
			return err
		}
		if has > had {
			r.wrote(x, table[i], max(had, 0), has)
		}
	}
	return nil
}

// wrote notes that one replica alone has the current rows [first, end) of a page.
func (r *replicas) wrote(x int, page int32, first, end int) {
	for y, n := range r.pages[page] {
		if y == x {
			r.pages[page][y] = max(n, end)
		} else {
			r.pages[page][y] = min(n, first)
		}
	}
}

// holder is a replica where the states of a slot are current.
func (r *replicas) holder(slot int) int {
	for x := range r.n {
		if r.slots[slot]&(1<<x) != 0 {
			return x
		}
	}
	panic("BUG: no replica has the states of a slot")
}

// longest is the replica that has the most current rows of a page.
func (r *replicas) longest(page int32) int {
	list := r.pages[page]
	return slices.Index(list, slices.Max(list))
}

// states makes the states of a slot current on a replica.
func (r *replicas) states(x, slot int) error {
	if r.slots[slot]&(1<<x) != 0 {
		return nil
	}
	y := r.holder(slot)
	for rank := range r.ranks {
		data := make([]byte, r.slotBytes[rank])
		if err := r.Machine.ReadSlot(y*r.ranks+rank, slot, 0, data); err != nil {
			return err
		}
		if err := r.Machine.WriteSlot(x*r.ranks+rank, slot, 0, data); err != nil {
			return err
		}
	}
	r.slots[slot] |= 1 << x
	return nil
}

// rows makes the first rows of a page current on a replica.
func (r *replicas) rows(x int, page int32, n int) error {
	y := r.longest(page)
	if n = min(n, r.pages[page][y]); r.pages[page][x] >= n {
		return nil
	}
	for rank := range r.ranks {
		data := make([]byte, r.pageBytes[rank])
		if err := r.Machine.ReadPage(y*r.ranks+rank, page, 0, data); err != nil {
			return err
		}
		if err := r.Machine.WritePage(x*r.ranks+rank, page, 0, data); err != nil {
			return err
		}
	}
	r.pages[page][x] = n
	return nil
}
