package comm

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/internal/spin"
	"github.com/krait-ml/krait/lowering"
)

// Group is the world of a model whose ranks are in several processes, one in each. Besides
// collectives it carries messages between their engines (see exec/group).
type Group struct {
	p      *Processes
	number uint16
	pieces []inbox // of collectives, by sender
	words  []inbox
	joined atomic.Bool
	comm   remote
	spins  [2]*spin.Waiter // for pieces, and for words

	stopped atomic.Int64 // the last step that was stopped; steps count from 1
	mu      sync.Mutex
	err     error // of that step

	on    atomic.Int64 // 1 + the rank that the step waits for; 0: none
	since atomic.Int64
	sent  atomic.Int64
}

func newGroup(p *Processes, number int) *Group {
	n := p.Ranks()
	g := &Group{p: p, number: uint16(number), pieces: make([]inbox, n), words: make([]inbox, n)}
	for i := range g.spins { // spin only if a processor is left to receive
		g.spins[i] = spin.New(2*n > runtime.GOMAXPROCS(0))
	}
	g.comm = remote{Group: g, gave: make([]uint32, n), got: make([]uint32, n), parties: map[lowering.Group]*party{}}
	return g
}

// Ranks is the number of ranks.
func (g *Group) Ranks() int { return g.p.Ranks() }

// Rank is the rank of this process.
func (g *Group) Rank() int { return g.p.Rank() }

// Processes are the processes of the group.
func (g *Group) Processes() *Processes { return g.p }

// Join returns the Comm of this process's rank.
func (g *Group) Join(rank int) (Comm, error) {
	switch {
	case rank != g.Rank():
		return nil, fmt.Errorf("rank %d joins in the process of rank %d: each process runs one", rank, g.Rank())
	case g.joined.Swap(true):
		return nil, fmt.Errorf("rank %d has joined already", rank)
	}
	return &g.comm, nil
}

// Sent is the number of bytes of collectives that this process has sent.
func (g *Group) Sent() int64 { return g.sent.Load() }

// inbox queues the messages of a rank.
type inbox struct {
	mu   sync.Mutex
	list []Message
	some atomic.Int32 // its length
}

func (b *inbox) put(m Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, m)
	b.some.Add(1)
}

// take removes the first message, or returns nil.
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

// take dispatches a message of a rank.
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

// wake unblocks waiting goroutines so they recheck their conditions.
func (g *Group) wake() {
	for _, s := range g.spins {
		s.Wake()
	}
}

// stop ends a step, unless it has ended. The first error counts.
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

// Send sends a message to a rank's engine.
func (g *Group) Send(to int, text []byte) {
	m := newMessage(word, g.number, len(text))
	copy(m.carried(), text)
	g.p.link.Send(to, m)
}

// Receive waits for a message of a rank's engine. If bounded, the rank must send it within the
// timeout.
func (g *Group) Receive(from int, bounded bool) ([]byte, error) {
	m, err := g.await(&g.words[from], 1, from, bounded, nil)
	if err != nil {
		return nil, err
	}
	return m.carried(), nil
}

// Meet is a barrier of all processes.
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
			panic(fmt.Sprintf("BUG: rank %d sent %q in a barrier", r, text))
		}
	}
	return nil
}

// await waits for a message of a rank, for an error of the processes, or for over to report true,
// where both results are nil.
func (g *Group) await(box *inbox, who, from int, bounded bool, over func() bool) (Message, error) {
	for {
		if err := g.p.Err(); err != nil { // later messages do not matter
			return nil, err
		}
		if m := box.take(); m != nil {
			return m, nil
		}
		switch {
		case over != nil && over():
			return nil, nil
		case g.p.left[from].Load() && box.some.Load() == 0:
			e := fmt.Errorf("rank %d has left, and others wait for it", from)
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
