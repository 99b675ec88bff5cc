package virtual

import (
	"fmt"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Memory is the bytes that a rank has taken.
type Memory struct {
	Weights, State, Cache, Arena int64 // constants are with the weights
}

// Sum is all of it.
func (m *Memory) Sum() int64 { return m.Weights + m.State + m.Cache + m.Arena }

// Memory is the memory of a rank, as devices allocate it: the arena of the largest step, and KV
// caches in whole pages.
func (m *Machine) Memory(rank int) Memory {
	s := m.clock.reader.list[rank]
	_, page := s.Page(int(m.pageTokens))
	b := &s.Bytes
	return Memory{b[lowering.Param] + b[lowering.Constant], b[lowering.State]*(m.slots+m.kept) + (s.TrialBytes()-b[lowering.State])*m.trials, page * m.pages, m.arena[rank]}
}

// fits checks that a rank has memory for its contents and a batch.
func (m *Machine) fits(z *graph.Sizes) error {
	if m.d.Unlimited {
		return nil
	}
	has := m.d.Profile.Usable(len(m.plan.Ranks))
	for r := range m.plan.Ranks {
		mem, of := m.Memory(r), ""
		sum := float64(mem.Sum())
		if z != nil {
			sum += max(0, m.plan.Ranks[r].Arena.Float(*z)-float64(mem.Arena))
			of = fmt.Sprintf(" with a batch of %d tokens of %d sequences", z.Tokens, z.Seqs)
		}
		if sum > float64(has) {
			return fmt.Errorf("it does not fit: rank %d needs %.0f bytes%s, and has %d of %s", r, sum, of, has, m.d.Profile.Name)
		}
	}
	return nil
}

// GrowSlots makes spare slots, for copies of states.
func (m *Machine) GrowSlots(n int) error {
	before := m.kept
	m.kept = int64(n) - m.slots
	return m.undo(func() { m.kept = before })
}

// GrowPages makes KV pages.
func (m *Machine) GrowPages(n int) error {
	before := m.pages
	m.pages = int64(n)
	return m.undo(func() { m.pages = before })
}

func (m *Machine) undo(back func()) error {
	err := m.fits(nil)
	if err != nil {
		back()
	}
	return err
}

// ClearSlot does nothing: there is no data, and it takes no time.
func (m *Machine) ClearSlot(int) error { return nil }

// CopySlot does nothing.
func (m *Machine) CopySlot(int, int) error { return nil }

// ReadSlot gives zeros.
func (m *Machine) ReadSlot(_, _ int, _ int64, to []byte) error {
	clear(to)
	return nil
}

// ReadRows gives zeros.
func (m *Machine) ReadRows(_, _ int, _ []state.PageRows, to []byte) error {
	clear(to)
	return nil
}

// ReadPage gives zeros.
func (m *Machine) ReadPage(_ int, _ int32, _ int64, to []byte) error {
	clear(to)
	return nil
}

// WriteSlot does nothing.
func (m *Machine) WriteSlot(int, int, int64, []byte) error { return nil }

// WriteRows does nothing.
func (m *Machine) WriteRows(int, int, []state.PageRows, []byte) error { return nil }

// WritePage does nothing.
func (m *Machine) WritePage(int, int32, int64, []byte) error { return nil }

// CopyRows does nothing.
func (m *Machine) CopyRows(state.PageRows, int32) error { return nil }
