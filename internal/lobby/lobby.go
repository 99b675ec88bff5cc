// Package lobby bounds the resources that unauthenticated clients hold of a server: connections, or
// bytes of bodies.
//
// A client never waits. When the limit is reached, the address that holds most loses its largest
// holding, and of equals its oldest. So a flood from one address evicts only itself.
package lobby

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Lobby holds guests up to a limit. Its methods may be called from several goroutines.
type Lobby struct {
	most int64

	mu      sync.Mutex
	held    int64
	entered uint64 // guests so far
	guests  map[*Guest]struct{}
	totals  map[string]int64 // what can be evicted, by address
}

// Guest is one holding of a client.
type Guest struct {
	l       *Lobby
	who     string
	evict   func()
	number  uint64 // of its entry
	holds   int64
	settled bool
	out     bool
}

// New makes a lobby whose guests hold at most most together.
func New(most int64) *Lobby {
	return &Lobby{most: most, guests: map[*Guest]struct{}{}, totals: map[string]int64{}}
}

// Enter adds a guest with a holding, and evicts others to stay within the limit; nil: the newcomer
// would be the first to be evicted. Evict is called at most once, before [Guest.Leave] returns. It
// must not block, nor call the lobby.
func (l *Lobby) Enter(who string, holds int64, evict func()) *Guest {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entered++
	g := &Guest{l: l, who: who, evict: evict, number: l.entered}
	l.guests[g] = struct{}{}
	if !l.grow(g, holds) {
		l.remove(g)
		return nil
	}
	return g
}

// Grow lets a guest that has not settled hold more. It reports false where the guest is evicted,
// now or before.
func (g *Guest) Grow(more int64) bool {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	return !g.out && !g.settled && g.l.grow(g, more)
}

// Settle keeps a guest from being evicted. It reports false where the guest is already.
func (g *Guest) Settle() bool {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	if !g.out && !g.settled {
		g.l.add(g.who, -g.holds)
		g.settled = true
	}
	return !g.out
}

// Leave ends what a guest holds. It may be called again.
func (g *Guest) Leave() {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	g.l.remove(g)
}

// Clear evicts all guests.
func (l *Lobby) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g := range l.guests {
		l.remove(g)
		g.evict()
	}
}

// grow adds to what a guest holds, and makes room for it.
func (l *Lobby) grow(g *Guest, more int64) bool {
	g.holds += more
	l.held += more
	l.add(g.who, more)
	for l.held > l.most {
		v := l.victim()
		l.remove(v)
		if v == g {
			return false
		}
		v.evict()
	}
	return true
}

// victim is the guest to evict next. The one that grows has not settled, so there is one.
func (l *Lobby) victim() (worst *Guest) {
	for g := range l.guests {
		if !g.settled && (worst == nil || l.worse(g, worst)) {
			worst = g
		}
	}
	return worst
}

// worse reports whether a is to be evicted before b.
func (l *Lobby) worse(a, b *Guest) bool {
	switch x, y := l.totals[a.who], l.totals[b.who]; {
	case x != y:
		return x > y
	case a.holds != b.holds:
		return a.holds > b.holds
	}
	return a.number < b.number
}

// remove takes a guest out.
func (l *Lobby) remove(g *Guest) {
	if g.out {
		return
	}
	g.out = true
	delete(l.guests, g)
	l.held -= g.holds
	if !g.settled {
		l.add(g.who, -g.holds)
	}
}

// add changes the total of an address.
func (l *Lobby) add(who string, n int64) {
	if l.totals[who] += n; l.totals[who] == 0 {
		delete(l.totals, who)
	}
}

// Host is the host of a connection's address: an IPv4 address, or the /64 network of an IPv6
// address, which a host usually has to itself.
func Host(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address // of a socket of the file system
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		p, err := ip.Prefix(64)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		return p.String()
	}
	return ip.String()
}

// Notices limits log lines about a flood.
type Notices struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

// Due counts an event. If the last notice is at least every ago, it returns the number of events
// since, and true.
func (n *Notices) Due(every time.Duration) (count int, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	if now := time.Now(); now.Sub(n.last) >= every {
		count, n.count, n.last = n.count, 0, now
		return count, true
	}
	return 0, false
}
