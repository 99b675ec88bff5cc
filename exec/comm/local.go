package comm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/internal/spin"
	"github.com/krait-ml/krait/lowering"
)

// Local is the world of ranks that share memory.
func Local(ranks int) World {
	r := &rendezvous{meetings: map[lowering.Group]*meeting{}, waiters: make([]*spin.Waiter, ranks)}
	for i := range r.waiters {
		r.waiters[i] = spin.New(ranks > runtime.GOMAXPROCS(0))
	}
	r.joined = make([]bool, ranks)
	return r
}

// rendezvous is where ranks that share memory wait for each other.
type rendezvous struct {
	mu       sync.Mutex
	joined   []bool         // by rank
	waiters  []*spin.Waiter // wait until all of a group have arrived, or one has stopped
	meetings map[lowering.Group]*meeting
	stopped  atomic.Int64 // the last step that was stopped; steps count from 1
	err      error        // of that step
}

// meeting is where the ranks of a group wait for each other.
type meeting struct {
	posted  []*Collective // by place in the group
	arrived int           // at the current rendezvous
	step    int64         // the current one
	round   atomic.Int64  // number of completed rendezvous
	passed  inTransit
}

func (r *rendezvous) Ranks() int { return len(r.joined) }

// Join returns the Comm of a rank.
func (r *rendezvous) Join(rank int) (Comm, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case rank < 0 || rank >= len(r.joined):
		return nil, fmt.Errorf("rank %d joins a world of %d ranks", rank, len(r.joined))
	case r.joined[rank]:
		return nil, fmt.Errorf("rank %d has joined already", rank)
	}
	r.joined[rank] = true
	return &shared{rendezvous: r, number: rank, seats: map[lowering.Group]*seat{}}, nil
}

// seat is the rank's place in a group.
func (c *shared) seat(g lowering.Group) *seat {
	if s := c.seats[g]; s != nil {
		return s
	}
	r := c.rendezvous
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.meetings[g]
	if m == nil {
		m = &meeting{posted: make([]*Collective, g.Size)}
		r.meetings[g] = m
	}
	s := &seat{shared: c, meeting: m, group: g, rank: g.Index(c.number), ranks: g.Size}
	if s.rank < 0 {
		panic(fmt.Sprintf("BUG: rank %d takes part in a collective of %+v", c.number, g))
	}
	s.over = func() bool { return m.round.Load() != s.round || c.Stopped() }
	c.seats[g] = s
	return s
}

// Begin begins a step.
func (c *shared) Begin() { c.step.Add(1) }

// wait returns when all ranks of the group have called it, or one has stopped.
func (s *seat) wait() error {
	last, err := s.arrive()
	if last || err != nil {
		return err
	}
	s.waiters[s.number].Wait(s.over)
	if s.meeting.round.Load() != s.round {
		return nil
	}
	return s.Err()
}

// arrive reports whether all have arrived.
func (s *seat) arrive() (last bool, err error) {
	r, m := s.rendezvous, s.meeting
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Stopped() {
		return false, r.err
	}
	if step := s.shared.step.Load(); m.step != step { // the last may have been stopped with some here
		m.step, m.arrived = step, 0
	}
	s.round = m.round.Load()
	if m.arrived++; m.arrived < s.ranks {
		return false, nil
	}
	m.arrived = 0
	m.round.Add(1)
	for i := range s.ranks {
		r.waiters[s.group.At(i)].Wake()
	}
	return true, nil
}

// Stop unblocks waiting ranks, with the first error.
func (c *shared) Stop(err error) {
	r := c.rendezvous
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.Stopped() {
		r.err = err
		r.stopped.Store(c.step.Load())
		for _, w := range r.waiters {
			w.Wake()
		}
	}
}

// Stopped reports whether the step, or a later one, was stopped: the others would not be in a later
// one if they still waited for this rank.
func (c *shared) Stopped() bool { return c.rendezvous.stopped.Load() >= c.step.Load() }

// Err is the first error of the step.
func (c *shared) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.Stopped() {
		return nil
	}
	return c.err
}
