package openai

import (
	"context"
	"fmt"
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
	// prompts, and what may follow them. 0 is what the model's memory plan has room for, where it
	// has attention and such a plan, and else a million; more than there is room for is an error.
	Tokens int
	// Rate bounds each tenant.
	Rate Rate
}

// queue decides who begins next. Of the tenants that wait, the one begins that has had, or holds,
// the fewest tokens (a virtual token counter: Sheng et al., "Fairness in Serving Large
// Language Models", OSDI 2024, algorithm 2), and of its requests the oldest.
type queue struct {
	Queue
	asked int // Queue.Tokens as it was given
	slots int
	room  int // tokens for which attention's caches have pages; 0: any number
	page  int // tokens of one
	now   func() time.Time

	mu      sync.Mutex // of all below
	tenants map[string]*tenant
	waiting int
	running int
	tokens  int
	held    int // of room, in whole pages
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
	held   int
	turn   chan struct{} // closed when it begins
	began  bool
	left   bool
}

func newQueue(limits Queue, slots int) *queue {
	asked := limits.Tokens
	if limits.Requests == 0 {
		limits.Requests = 256
	}
	if limits.Tokens == 0 {
		limits.Tokens = 1_000_000
	}
	return &queue{Queue: limits, asked: asked, slots: slots, now: time.Now, tenants: map[string]*tenant{}}
}

// bind makes the memory plan of a model a bound, too. Of its tokens each text takes whole pages.
func (q *queue) bind(room, page int) error {
	if room == 0 {
		return nil
	}
	switch q.room, q.page = room, page; {
	case q.asked == 0:
		q.Tokens = room
	case q.asked > room:
		return fmt.Errorf("%d tokens under way and waiting are more than the memory plan has room for, which is %d: give fewer", q.asked, room)
	}
	return nil
}

// pages is how much room a text of so many tokens takes, of which the last is not read.
func (q *queue) pages(tokens int) int {
	if q.room == 0 {
		return 0
	}
	return (tokens - 1 + q.page - 1) / q.page * q.page
}

// counts reports whether tokens are bounded as such, and not by room alone.
func (q *queue) counts() bool { return q.room == 0 || q.asked > 0 }

// enter takes a ticket for each of several generations with so many tokens, or none.
func (q *queue) enter(name string, tokens []int) ([]*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sum, held := 0, 0
	for _, n := range tokens {
		sum += n
		held += q.pages(n)
	}
	switch {
	case q.closed:
		return nil, errDraining()
	case sum > q.Tokens && q.counts():
		return nil, badBody("the request may take %d tokens; this server takes %d at a time: ask for fewer", sum, q.Tokens)
	case q.room > 0 && held > q.room:
		return nil, badBody("the request may take %d tokens, in pages of %d; this server's memory has room for %d: ask for fewer", sum, q.page, q.room)
	case len(tokens) > q.most():
		return nil, badBody("the request is for %d texts; this server takes %d at a time", len(tokens), q.most())
	case len(tokens)+q.waiting+q.running > q.most():
		return nil, q.full("%d requests are waiting", q.waiting)
	case sum+q.tokens > q.Tokens && q.counts():
		return nil, q.full("%d tokens are under way or waiting", q.tokens)
	case q.room > 0 && held+q.held > q.room:
		return nil, q.full("those under way and waiting may come to have %d tokens of the %d that its memory has room for", q.held, q.room)
	}
	t := q.tenant(name)
	if err := t.takes(q.Rate, sum, q.now()); err != nil {
		return nil, err
	}
	q.work()
	var list []*ticket
	for _, n := range tokens {
		k := &ticket{q: q, t: t, tokens: n, held: q.pages(n), turn: make(chan struct{})}
		list = append(list, k)
		t.waiting = append(t.waiting, k)
	}
	q.waiting += len(list)
	q.tokens += sum
	q.held += held
	q.next()
	return list, nil
}

// most is how many texts there may be together, under way and waiting.
func (q *queue) most() int { return q.slots + q.Requests }

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
	q.held -= k.held
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
