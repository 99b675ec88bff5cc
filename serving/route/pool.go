package route

import (
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/internal/balance"
)

// pool is the machines of one role, with their active requests.
type pool struct {
	mu       sync.Mutex
	machines []*machine
	turn     int // requests so far
}

// assignment is a machine's work for a request.
type assignment struct {
	p    *pool
	m    *machine
	work balance.Work
	once sync.Once
}

// take assigns a request to the ready machine that would have the least work with it, except those
// already tried; nil: no machine is ready. Ejected machines come last.
func (p *pool) take(n balance.Need, tried []*machine, now time.Time) *assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	var c balance.Choice[*machine]
	for _, m := range p.machines {
		if m.ready && !slices.Contains(tried, m) {
			c.Offer(m, &m.load, n, now.Before(m.until))
		}
	}
	if c.Best == nil {
		return nil
	}
	p.turn++
	return &assignment{p: p, m: c.Best, work: c.Best.load.Add(n, p.turn)}
}

// prefilled ends the work of the prompt.
func (h *assignment) prefilled() {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.m.load.Prefilled(&h.work)
}

// free ends the assignment. It may be called more than once, and on nil.
func (h *assignment) free() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		h.p.mu.Lock()
		defer h.p.mu.Unlock()
		h.m.load.Remove(h.work)
	})
}

// ready counts the ready machines.
func (p *pool) ready() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.machines {
		if m.ready {
			n++
		}
	}
	return n
}
