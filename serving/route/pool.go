package route

import (
	"slices"
	"sync"
	"time"
)

// answerBytes is what a token of an answer counts as, in bytes of prompts to read: a step of its own
// for one token, where a prompt's share steps.
const answerBytes = 16

// pool is machines that do the same, and what is under way there.
type pool struct {
	mu       sync.Mutex
	machines []*machine
	next     int // where to begin among equals
}

// need is what a request has a machine do.
type need struct {
	blocks []uint64 // of its prompt; nil: it reads none
	bytes  int      // of its prompt
	tokens int      // of its answers
}

// held is a machine that works for a request.
type held struct {
	p    *pool
	m    *machine
	work int64
	once sync.Once
}

// take chooses the machine that has the least to do if it gets the request as well, but for those
// that were tried; nil: there is none that is ready. Those that are left out come last.
func (p *pool) take(n need, tried []*machine, now time.Time) *held {
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
	h := &held{p: p, m: best, work: n.work(best)}
	best.running++
	best.work += h.work
	best.seen.add(n.blocks)
	return h
}

// work is what a machine has to do for it.
func (n *need) work(m *machine) int64 {
	return int64(n.bytes-m.seen.match(n.blocks)) + int64(n.tokens)*answerBytes
}

// free says that the machine has done it, or will not. It may be called again, and of nil.
func (h *held) free() {
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

// ready counts those that take requests.
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
