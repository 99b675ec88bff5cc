package transport

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Ticket identifies a grant. It cannot be guessed.
type Ticket [16]byte

// Session identifies a reader, from its handshake on. It cannot be guessed.
type Session [16]byte

// NewSession makes a session.
func NewSession() (s Session) {
	rand.Read(s[:])
	return s
}

// ErrEnded is the error of a ticket whose lease has ended, or that is unknown.
var ErrEnded = errors.New("the state is not lent any more: its lease has ended")

// ErrAnother is the error of a ticket of another reader.
var ErrAnother = errors.New("the state is lent to another reader")

// Grants are the leases of a source. The methods may be called from several goroutines.
type Grants struct {
	mu   sync.Mutex
	open map[Ticket]*grant
}

// grant is a lease.
type grant struct {
	to      Session
	regions map[Region]Memory
	timer   *time.Timer
	readers int // active
	over    bool
	ended   func()
}

// NewGrants returns grants without leases.
func NewGrants() *Grants { return &Grants{open: map[Ticket]*grant{}} }

// Lend lends regions to a reader for the time of a lease. Ended is called once, when the lease has
// ended or [Grants.End] was called, and no read is active: the memory can be reused then.
func (g *Grants) Lend(to Session, regions map[Region]Memory, lease time.Duration, ended func()) Ticket {
	var t Ticket
	rand.Read(t[:])
	x := &grant{to: to, regions: regions, ended: ended}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[t] = x
	x.timer = time.AfterFunc(lease, func() { g.End(to, t) })
	return t
}

// End ends a lease. It reports whether it lasted until now, so that data read without requests, by
// RDMA, is valid.
func (g *Grants) End(by Session, t Ticket) bool {
	g.mu.Lock()
	x := g.open[t]
	if x == nil || x.to != by {
		g.mu.Unlock()
		return false
	}
	delete(g.open, t)
	x.timer.Stop()
	x.over = true
	last := x.readers == 0
	g.mu.Unlock()
	if last {
		x.ended()
	}
	return true
}

// EndAll ends all leases of a reader.
func (g *Grants) EndAll(of Session) {
	g.mu.Lock()
	var list []Ticket
	for t, x := range g.open {
		if x.to == of {
			list = append(list, t)
		}
	}
	g.mu.Unlock()
	for _, t := range list {
		g.End(of, t)
	}
}

// Len returns the number of leases.
func (g *Grants) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open)
}

// hold begins a read: the memory is not reused until leave.
func (g *Grants) hold(by Session, t Ticket) (*grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.open[t]
	switch {
	case x == nil:
		return nil, ErrEnded
	case x.to != by:
		return nil, ErrAnother
	}
	x.readers++
	return x, nil
}

// leave ends a read.
func (g *Grants) leave(x *grant) {
	g.mu.Lock()
	x.readers--
	last := x.over && x.readers == 0
	g.mu.Unlock()
	if last {
		x.ended()
	}
}

// at returns the memory of a region, and checks a range of it.
func (x *grant) at(r Region, from, n int64) (Memory, error) {
	m, ok := x.regions[r]
	if !ok {
		return nil, fmt.Errorf("region %#x is not lent under this ticket", uint64(r))
	}
	if !inside(m, from, n) {
		return nil, fmt.Errorf("%d bytes from %d on of region %#x, which has %d", n, from, uint64(r), m.Size())
	}
	return m, nil
}
