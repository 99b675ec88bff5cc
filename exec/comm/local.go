package comm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/internal/spin"
)

// Local is the world of ranks that share memory.
func Local(ranks int) World {
	r := &rendezvous{posted: make([]*Collective, ranks), waiters: make([]*spin.Waiter, ranks)}
	for i := range r.waiters {
		r.waiters[i] = spin.New(ranks > runtime.GOMAXPROCS(0))
	}
	r.joined = make([]bool, ranks)
	return r
}

// rendezvous is where ranks that share memory wait for each other.
type rendezvous struct {
	mu      sync.Mutex
	joined  []bool         // by rank
	waiters []*spin.Waiter // wait until all have arrived, or one has stopped
	posted  []*Collective
	arrived int          // at the current rendezvous
	step    int64        // the current one
	round   atomic.Int64 // number of completed rendezvous
	stopped atomic.Int64 // the last step that was stopped; steps count from 1
	err     error        // of that step
}

func (r *rendezvous) Ranks() int { return len(r.posted) }

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
	c := &shared{rendezvous: r, rank: rank, ranks: len(r.posted)}
	c.over = func() bool { return r.round.Load() != c.round || c.Stopped() }
	return c, nil
}

// Begin begins a step.
func (c *shared) Begin() { c.step.Add(1) }

// wait returns when all ranks have called it, or one has stopped.
func (c *shared) wait() error {
	last, err := c.arrive()
	if last || err != nil {
		return err
	}
	c.waiters[c.rank].Wait(c.over)
	if c.rendezvous.round.Load() != c.round {
		return nil
	}
	return c.Err()
}

// arrive reports whether all have arrived.
func (c *shared) arrive() (last bool, err error) {
	r := c.rendezvous
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Stopped() {
		return false, r.err
	}
	if step := c.step.Load(); r.step != step { // the last may have been stopped with some here
		r.step, r.arrived = step, 0
	}
	c.round = r.round.Load()
	if r.arrived++; r.arrived < c.ranks {
		return false, nil
	}
	r.arrived = 0
	r.round.Add(1)
	r.wakeAll()
	return true, nil
}

func (r *rendezvous) wakeAll() {
	for _, w := range r.waiters {
		w.Wake()
	}
}

// Stop unblocks waiting ranks, with the first error.
func (c *shared) Stop(err error) {
	r := c.rendezvous
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.Stopped() {
		r.err = err
		r.stopped.Store(c.step.Load())
		r.wakeAll()
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
