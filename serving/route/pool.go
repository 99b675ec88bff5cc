package route

import (
	"slices"
	"sync"
	"time"
)

// answerBytes is the work of decoding a token, in bytes of prompts to prefill: a decoded token
// needs a step of its own, where a prompt's tokens share steps.
const answerBytes = 16

// pool is the machines of one role, with their active requests.
type pool struct {
	mu       sync.Mutex
	machines []*machine
	next     int // round robin among equals
}

// need is the work of a request.
type need struct {
	blocks []uint64 // hashes of the prompt; nil: nothing to prefill
	bytes  int      // of the prompt
	tokens int      // of the answers
}

// assignment is a machine's work for a request.
type assignment struct {
	p    *pool
	m    *machine
	work int64
	once sync.Once
}

// take assigns a request to the ready machine that would have the least work with it, except those
// already tried; nil: no machine is ready. Ejected machines come last.
func (p *pool) take(n need, tried []*machine, now time.Time) *assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *machine
	var least int64
	var out bool
	for i := range p.machines {
		m := p.machines[(p.next+i)%len(p.machines)]
		if !m.ready || slices.Contains(tried, m) {
			continue
		}
		ejected := now.Before(m.until)
		work := m.work + n.work(m)
		if best == nil || out && !ejected || out == ejected && (work < least || work == least && m.running < best.running) {
			best, least, out = m, work, ejected
		}
	}
	if best == nil {
		return nil
	}
	p.next++
	h := &assignment{p: p, m: best, work: n.work(best)}
	best.running++
	best.work += h.work
	best.seen.add(n.blocks)
	return h
}

// work returns the work of the request on a machine, with what its prefix cache is expected to
// hold.
func (n *need) work(m *machine) int64 {
	return int64(n.bytes-m.seen.match(n.blocks)) + int64(n.tokens)*answerBytes
}

// free ends the assignment. It may be called more than once, and on nil.
func (h *assignment) free() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		h.p.mu.Lock()
		defer h.p.mu.Unlock()
		h.m.running--
		h.m.work -= h.work
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
