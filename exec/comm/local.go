package comm

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Local is the world of so many ranks that share memory.
func Local(ranks int) World {
	r := &rendezvous{posted: make([]*Collective, ranks), joined: make([]bool, ranks)}
	r.all.L = &r.mu
	return r
}

// rendezvous is where ranks that share memory wait for each other.
type rendezvous struct {
	mu      sync.Mutex
	all     sync.Cond // all have arrived, or one has stopped
	joined  []bool    // by rank
	posted  []*Collective
	arrived int          // at the rendezvous under way
	step    int64        // which they are in
	round   int          // counts those that are over
	stopped atomic.Int64 // the last step that was stopped; steps count from 1
	err     error        // why
}

func (r *rendezvous) Ranks() int { return len(r.posted) }

// Join gives a rank its comm.
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
	return &shared{rendezvous: r, rank: rank, ranks: len(r.posted)}, nil
}

// Begin begins a step.
func (c *shared) Begin() { c.step.Add(1) }

// wait returns when all ranks have called it, or one has stopped.
func (c *shared) wait() error {
	r := c.rendezvous
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Stopped() {
		return r.err
	}
	if step := c.step.Load(); r.step != step { // the last may have been stopped with some here
		r.step, r.arrived = step, 0
	}
	if r.arrived++; r.arrived == c.ranks {
		r.arrived = 0
		r.round++
		r.all.Broadcast()
		return nil
	}
	for round := r.round; round == r.round; {
		if c.Stopped() {
			return r.err
		}
		r.all.Wait()
	}
	return nil
}

// Stop lets all who wait go, with the first error.
func (c *shared) Stop(err error) {
	r := c.rendezvous
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.Stopped() {
		r.err = err
		r.stopped.Store(c.step.Load())
		r.all.Broadcast()
	}
}

// Stopped reports whether the step was stopped.
func (c *shared) Stopped() bool { return c.rendezvous.stopped.Load() == c.step.Load() }

// Err is the first error of the step.
func (c *shared) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.Stopped() {
		return nil
	}
	return c.err
}
