package openai

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Queue bounds what a server takes on. The zero value is a good start.
type Queue struct {
	// Requests is how many may wait for a slot; 0 is 256.
	Requests int
	// Tokens is how many tokens those under way and those that wait may have together:
	// prompts, and what may follow them; 0 is a million.
	Tokens int
	// Rate bounds each tenant.
	Rate Rate
}

// queue decides who begins next. Of the tenants that wait, the one begins that has had, or holds,
// the fewest tokens (a virtual token counter: Sheng et al., "Fairness in Serving Large
// Language Models", OSDI 2024, algorithm 2), and of its requests the oldest.
type queue struct {
	Queue
	slots int
	now   func() time.Time

	mu      sync.Mutex // of all below
	tenants map[string]*tenant
	waiting int
	running int
	tokens  int
	closed  bool
	last    int           // what the tenant had that left last
	done    int           // tokens of those that left
	busy    time.Duration // in which something was under way, up to since
	since   time.Time     // when something came to be under way, or left
}

// tenant is somebody with a key; all without one are one tenant.
type tenant struct {
	name    string
	given   int // tokens that it had, as a virtual counter
	held    int // tokens that those under way may come to have
	waiting []*ticket
	running int

	requests, tokens bucket // what is left of its rate
}

// ticket is a place in the queue, and then one among those under way.
type ticket struct {
	q      *queue
	t      *tenant
	tokens int
	turn   chan struct{} // closed when it begins
	began  bool
	left   bool
}

func newQueue(limits Queue, slots int) *queue {
	if limits.Requests == 0 {
		limits.Requests = 256
	}
	if limits.Tokens == 0 {
		limits.Tokens = 1_000_000
	}
	return &queue{Queue: limits, slots: slots, now: time.Now, tenants: map[string]*tenant{}}
}

// enter takes a ticket for each of several generations with so many tokens, or none.
func (q *queue) enter(name string, tokens []int) ([]*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sum := 0
	for _, n := range tokens {
		sum += n
	}
	switch {
	case q.closed:
		return nil, errDraining()
	case sum > q.Tokens:
		return nil, badBody("the request may take %d tokens; this server takes %d at a time: ask for fewer", sum, q.Tokens)
	case len(tokens) > q.most():
		return nil, badBody("the request is for %d texts; this server takes %d at a time", len(tokens), q.most())
	case len(tokens)+q.waiting+q.running > q.most():
		return nil, q.full("%d requests are waiting", q.waiting)
	case sum+q.tokens > q.Tokens:
		return nil, q.full("%d tokens are under way or waiting", q.tokens)
	}
	t := q.tenant(name)
	if err := t.takes(q.Rate, sum, q.now()); err != nil {
		return nil, err
	}
	q.work()
	var list []*ticket
	for _, n := range tokens {
		k := &ticket{q: q, t: t, tokens: n, turn: make(chan struct{})}
		list = append(list, k)
		t.waiting = append(t.waiting, k)
	}
	q.waiting += len(list)
	q.tokens += sum
	q.next()
	return list, nil
}

// most is how many texts there may be together, under way and waiting.
func (q *queue) most() int { return q.slots + q.Requests }

func errDraining() error {
	return coded(http.StatusServiceUnavailable, "server_error", "draining", "the server finishes what it has, and takes no more")
}

// work counts the time up to now, if something was under way.
func (q *queue) work() {
	now := q.now()
	if q.running > 0 {
		q.busy += now.Sub(q.since)
	}
	q.since = now
}

// full says when there may be room, by the tokens that were finished per second in which something
// was under way.
func (q *queue) full(format string, args ...any) error {
	e := coded(http.StatusTooManyRequests, "rate_limit_error", "queue_full", "the server is full: "+format+"; ask again later", args...)
	e.Retry = time.Second
	q.work()
	if rate := float64(q.done) / q.busy.Seconds(); rate > 0 { // or nobody has left yet: 0, or 0/0
		perSlot := float64(q.tokens) / float64(max(q.waiting+q.running, 1))
		e.Retry = min(max(time.Duration(perSlot/rate*float64(time.Second)), time.Second), time.Minute)
	}
	return e
}

// tenant finds a tenant. One that has nothing here is lifted to the least of those that have:
// it cannot save up for what it did not ask.
func (q *queue) tenant(name string) *tenant {
	t := q.tenants[name]
	if t == nil { // as many as there are keys
		t = &tenant{name: name}
		q.tenants[name] = t
	}
	if t.idle() {
		least := math.MaxInt
		for _, other := range q.tenants {
			if !other.idle() {
				least = min(least, other.given)
			}
		}
		if least == math.MaxInt { // nobody is here
			least = q.last
		}
		t.given = max(t.given, least)
	}
	return t
}

// cost is what a tenant had, and may come to have of what is under way.
func (t *tenant) cost() int { return t.given + t.held }

func (t *tenant) idle() bool { return len(t.waiting) == 0 && t.running == 0 }

// next lets those begin for whom there are slots.
func (q *queue) next() {
	for q.running < q.slots && q.waiting > 0 {
		var least *tenant
		for _, t := range q.tenants {
			if len(t.waiting) > 0 && (least == nil || t.cost() < least.cost() || t.cost() == least.cost() && t.name < least.name) {
				least = t
			}
		}
		k := least.waiting[0]
		least.waiting = least.waiting[1:]
		least.held += k.tokens
		least.running++
		q.waiting--
		q.running++
		k.began = true
		close(k.turn)
	}
}

// wait waits for the ticket's turn.
func (k *ticket) wait(ctx context.Context) error {
	select {
	case <-k.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives the place back, with how many tokens there were in the end.
func (k *ticket) leave(used int) {
	q := k.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if k.left {
		return
	}
	k.left = true
	q.work()
	q.tokens -= k.tokens
	k.t.tokens.give(q.Rate.Tokens, float64(k.tokens-used))
	if k.began {
		q.running--
		k.t.running--
		k.t.held -= k.tokens
		k.t.given += used
		q.last = k.t.given
		q.done += used
	} else {
		q.waiting--
		k.t.waiting = slices.DeleteFunc(k.t.waiting, func(o *ticket) bool { return o == k })
	}
	q.next()
}

// close lets nobody enter any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// load counts what waits and what runs, and their tokens.
func (q *queue) load() (waiting, running, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, q.running, q.tokens
}
