package comm

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// memoryLink is a link between processes that are one.
type memoryLink struct {
	rank    int
	all     []*memoryLink
	in      []chan Message // by sender
	deliver func(int, Message)
	lost    func(int, error)
	ready   chan struct{}
	once    sync.Once
	dead    chan struct{} // nothing comes or goes any more
	frozen  chan struct{} // likewise, without an error
	sent    int           // bytes
	mu      sync.Mutex
}

func memoryLinks(n int) []*memoryLink {
	list := make([]*memoryLink, n)
	for r := range list {
		l := &memoryLink{rank: r, all: list, ready: make(chan struct{}), dead: make(chan struct{}), frozen: make(chan struct{})}
		for range n {
			l.in = append(l.in, make(chan Message, 1<<12))
		}
		list[r] = l
	}
	return list
}

func (l *memoryLink) Rank() int  { return l.rank }
func (l *memoryLink) Ranks() int { return len(l.all) }

func (l *memoryLink) Start(deliver func(int, Message), lost func(int, error)) {
	l.deliver, l.lost = deliver, lost
	for r := range l.in {
		if r == l.rank {
			continue
		}
		go func() {
			for {
				select {
				case <-l.dead:
					return
				case <-l.frozen:
					return
				case m := <-l.in[r]:
					select {
					case <-l.frozen:
						return
					default:
						deliver(r, m)
					}
				case <-l.all[r].dead:
					for len(l.in[r]) > 0 { // what was on its way
						deliver(r, <-l.in[r])
					}
					lost(r, errors.New("it is dead"))
					return
				}
			}
		}()
	}
}

func (l *memoryLink) Send(to int, m Message) {
	l.mu.Lock()
	l.sent += len(m)
	l.mu.Unlock()
	select {
	case <-l.frozen:
		return
	default:
	}
	select {
	case <-l.dead:
	case l.all[to].in[l.rank] <- m:
	}
}

func (l *memoryLink) Close(time.Duration, bool) error {
	l.once.Do(func() { close(l.dead) })
	return nil
}

// processes makes Processes in one process.
func processes(t *testing.T, n int, timeout time.Duration) ([]*Processes, []*memoryLink) {
	t.Helper()
	links := memoryLinks(n)
	var list []*Processes
	for _, l := range links {
		p := Connect(l, Options{Timeout: timeout})
		t.Cleanup(func() { p.Close(nil) })
		list = append(list, p)
	}
	return list, links
}

// worlds are of ranks that share memory, and of ranks in processes;
// each function returns a world per rank.
var worlds = map[string]func(t *testing.T, ranks int) []World{
	"shared": func(_ *testing.T, ranks int) []World {
		w := Local(ranks)
		list := make([]World, ranks)
		for r := range list {
			list[r] = w
		}
		return list
	},
	"processes": func(t *testing.T, ranks int) []World {
		all, _ := processes(t, ranks, time.Minute)
		var list []World
		for _, p := range all {
			list = append(list, p.NewGroup())
		}
		return list
	},
}

var ways = []string{"shared", "processes"}
