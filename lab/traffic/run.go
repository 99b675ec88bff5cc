package traffic

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/krait-ml/krait/internal/balance"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/session/prefix"
)

// simulation runs events in the order of their times: of one time the arrivals first, and then the
// others in the order in which they were planned. When all of a time have happened, servers that
// run no step begin one: a request that arrives at the end of a step is in the next.
type simulation struct {
	*Options
	now             time.Duration
	events          events
	planned         int
	decode, prefill pool
	outcomes        []load.Outcome
	next            int // request of a closed loop
	left            int // requests that have ended
	blocks          blocks
	moved           int64
	moving          []float64
	err             error
}

// pool is the servers of a role.
type pool struct {
	servers []*server
	turn    int
}

// take assigns a request to the server with the least work, except one; nil: there is no other.
func (p *pool) take(n balance.Need, except *server) (*server, balance.Work) {
	var c balance.Choice[*server]
	for _, x := range p.servers {
		if x != except {
			c.Offer(x, &x.load, n, false)
		}
	}
	if c.Best == nil {
		return nil, balance.Work{}
	}
	p.turn++
	return c.Best, c.Best.load.Add(n, p.turn)
}

// event is what happens at a time.
type event struct {
	at     time.Duration
	number int
	happen func()
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return x
}

// mostTime is when a simulation must have ended: with the last time of traces.
const mostTime = time.Duration(prefix.MostSeconds * 1e9)

// at plans what happens at a time.
func (s *simulation) at(t time.Duration, happen func()) { s.plan(&event{at: t, happen: happen}) }

// plan plans an event after those of its time.
func (s *simulation) plan(e *event) {
	if e.at < s.now || e.at > mostTime {
		s.err = fmt.Errorf("an event comes after %g seconds: give a faster link, or a higher rate", mostTime.Seconds())
	}
	e.number = s.planned
	s.planned++
	heap.Push(&s.events, e)
}

// wall returns a time as a time of day.
func wall(t time.Duration) time.Time { return time.Unix(0, int64(t)) }

// length returns seconds as a duration.
func length(seconds float64) time.Duration {
	return time.Duration(min(seconds*1e9+0.5, float64(mostTime)))
}

func (s *simulation) all() []*server { return slices.Concat(s.decode.servers, s.prefill.servers) }

// arrive plans the arrivals: all of an open loop, and the first of each client of a closed one.
func (s *simulation) arrive() {
	if n := s.Load.Concurrency; n > 0 {
		for range min(n, len(s.Trace)) {
			s.at(0, s.follow)
		}
		return
	}
	s.planned = len(s.Trace)
	s.arrival(s.Load.Arrivals(s.Trace, s.Seed), 0)
}

// arrival plans that of request i, which then plans the next. They come before other events of
// their times.
func (s *simulation) arrival(due []time.Duration, i int) {
	if i < len(due) {
		heap.Push(&s.events, &event{due[i], i, func() {
			s.arrival(due, i+1)
			s.send(i)
		}})
	}
}

// follow sends the next request of a closed loop.
func (s *simulation) follow() {
	if i := s.next; i < len(s.Trace) {
		s.next++
		s.send(i)
	}
}

// run lets all events happen.
func (s *simulation) run(ctx context.Context) error {
	servers := s.all()
	for len(s.events) > 0 && s.err == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.now = s.events[0].at
		for len(s.events) > 0 && s.events[0].at == s.now {
			heap.Pop(&s.events).(*event).happen()
		}
		for _, x := range servers {
			x.begin()
		}
	}
	return s.err
}
