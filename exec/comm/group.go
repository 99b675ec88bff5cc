package comm

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/internal/spin"
)

// Group is the world of a model whose ranks are in several processes, one in each:
// rank 0 says what all do, the others follow it. Besides collectives it carries words
// between their engines.
type Group struct {
	p      *Processes
	number uint16
	pieces []inbox // of collectives, by who sent them
	words  []inbox
	joined atomic.Bool
	comm   remote
	spins  [2]*spin.Waiter // of who waits for pieces, and for words

	stopped atomic.Int64 // the last step that was; steps count from 1
	mu      sync.Mutex
	err     error // why

	on    atomic.Int64 // the rank, and 1, for which the step waits; 0: for none
	since atomic.Int64
	sent  atomic.Int64
}

func newGroup(p *Processes, number int) *Group {
	n := p.Ranks()
	g := &Group{p: p, number: uint16(number), pieces: make([]inbox, n), words: make([]inbox, n)}
	for i := range g.spins { // who waits looks only where a processor is left to take in what comes
		g.spins[i] = spin.New(2*n > runtime.GOMAXPROCS(0))
	}
	g.comm = remote{Group: g, rank: p.Rank(), ranks: n, came: make([]Message, n)}
	return g
}

// Ranks is how many ranks there are.
func (g *Group) Ranks() int { return g.p.Ranks() }

// Rank is the one that this process runs.
func (g *Group) Rank() int { return g.p.Rank() }

// Processes are those that the group joins.
func (g *Group) Processes() *Processes { return g.p }

// Join gives the rank of this process its way to the others.
func (g *Group) Join(rank int) (Comm, error) {
	switch {
	case rank != g.Rank():
		return nil, fmt.Errorf("rank %d joins in the process of rank %d: each process runs one", rank, g.Rank())
	case g.joined.Swap(true):
		return nil, fmt.Errorf("rank %d has joined already", rank)
	}
	return &g.comm, nil
}

// Sent is how many bytes of collectives this process has sent.
func (g *Group) Sent() int64 { return g.sent.Load() }

// inbox has what came from a rank, in order.
type inbox struct {
	mu   sync.Mutex
	list []Message
	some atomic.Int32 // its length, for who looks
}

func (b *inbox) put(m Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, m)
	b.some.Add(1)
}

// take is the first, or nil.
func (b *inbox) take() Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == 0 {
		return nil
	}
	m := b.list[0]
	b.list = b.list[:copy(b.list, b.list[1:])]
	b.some.Add(-1)
	return m
}

// take takes in what a rank has sent.
func (g *Group) take(from int, m Message) {
	switch m.kind() {
	case piece:
		g.pieces[from].put(m)
		g.spins[0].Wake()
	case word:
		g.words[from].put(m)
		g.spins[1].Wake()
	case stop:
		g.stop(m.step(), errors.New(string(m.carried())))
		Recycle(m)
	}
}

// wake lets who waits look.
func (g *Group) wake() {
	for _, s := range g.spins {
		s.Wake()
	}
}

// stop ends a step, with the first error that there is.
func (g *Group) stop(step int64, err error) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped.Load() >= step {
		return false
	}
	g.err = err
	g.stopped.Store(step)
	g.wake()
	return true
}

// Send sends a word to a rank.
func (g *Group) Send(to int, text []byte) {
	m := newMessage(word, g.number, len(text))
	copy(m.carried(), text)
	g.p.link.Send(to, m)
}

// Receive waits for a word from a rank. Bounded: it is one that comes in a step, or at
// once, so that who does not send it within the timeout hangs.
func (g *Group) Receive(from int, bounded bool) ([]byte, error) {
	m, err := g.await(&g.words[from], 1, from, bounded, nil)
	if err != nil {
		return nil, err
	}
	return m.carried(), nil
}

// Meet returns when all processes have called it.
func (g *Group) Meet() error {
	for r := range g.Ranks() {
		if r != g.Rank() {
			g.Send(r, nil)
		}
	}
	for r := range g.Ranks() {
		if r == g.Rank() {
			continue
		}
		if text, err := g.Receive(r, true); err != nil {
			return err
		} else if len(text) > 0 {
			panic(fmt.Sprintf("BUG: rank %d says %q where all meet", r, text))
		}
	}
	return nil
}

// await waits for a message from a rank, for the end of all, or until over says so, which is no error.
func (g *Group) await(box *inbox, who, from int, bounded bool, over func() bool) (Message, error) {
	for {
		if err := g.p.Err(); err != nil { // what came since is about that
			return nil, err
		}
		if m := box.take(); m != nil {
			return m, nil
		}
		switch {
		case over != nil && over():
			return nil, nil
		case g.p.left[from].Load() && box.some.Load() == 0:
			e := fmt.Errorf("rank %d has left, and is waited for", from)
			g.p.fail(e, e)
			continue
		}
		if bounded {
			g.since.Store(time.Now().UnixNano())
			g.on.Store(int64(from) + 1)
		}
		g.spins[who].Wait(func() bool {
			return box.some.Load() > 0 || g.p.left[from].Load() || g.p.Err() != nil || over != nil && over()
		})
		g.on.Store(0)
	}
}
