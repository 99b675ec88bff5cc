package openai

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/krait-ml/krait/internal/maxmin"
)

// Queue bounds what a server takes on. The zero value is a good start.
type Queue struct {
	// Requests is how many may wait for a slot; 0 is 256. Of this and of Tokens, tenants have
	// shares.
	Requests int
	// Tokens is how many tokens those under way and those that wait may have together:
	// prompts, and what may follow them. 0 is what the model's memory plan has room for, where it
	// has attention and such a plan, and else a million; more than there is room for is an error.
	Tokens int
	// Rate bounds each tenant.
	Rate Rate
}

// queue bounds what a server takes on: places, tokens, and room in attention's caches. Who begins
// is the scheduler's to decide.
//
// A tenant alone may have all of each. Where several ask, each may have its max-min share (package
// maxmin) whatever others have taken before: what these hold above theirs does not count against
// it. So with n tenants there may be 1 + 1/2 + … + 1/n times as much as the bounds say, which is no
// memory but that of prompts that wait: the scheduler keeps to the memory plan.
type queue struct {
	Queue
	asked int // Queue.Tokens as it was given
	slots int
	room  int // tokens for which attention's caches have pages; 0: any number
	page  int // tokens of one
	now   func() time.Time

	mu      sync.Mutex // of all below
	tenants map[string]*tenant
	total   amounts
	begun   int // texts that have had a slot
	closed  bool
	done    int           // tokens of those that left
	busy    time.Duration // in which something was under way, up to since
	since   time.Time     // when something came to be under way, or left
}

// amounts are what texts take of the queue.
type amounts struct {
	places int // texts, running or waiting
	tokens int // that they may come to have
	rated  int // of these, with each prompt once however many texts go on from it
	room   int // in attention's caches, in whole pages
}

func (a *amounts) add(b amounts) {
	a.places, a.tokens, a.rated, a.room = a.places+b.places, a.tokens+b.tokens, a.rated+b.rated, a.room+b.room
}

func (a *amounts) sub(b amounts) { a.add(amounts{-b.places, -b.tokens, -b.rated, -b.room}) }

// tenant is somebody with a key; all without one are one tenant.
type tenant struct {
	name  string
	taken amounts

	requests, tokens bucket // what is left of its rate
}

// demand is what a text asks for. The prompt of one that shares it is read with that of the text
// before it.
type demand struct {
	prompt, most int
	shares       bool
}

// ticket is the place of a text.
type ticket struct {
	q     *queue
	t     *tenant
	takes amounts
	began bool
	left  bool
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

// amounts is what a text takes. Its last token is not read.
func (q *queue) amounts(x demand) amounts {
	a := amounts{places: 1, tokens: x.prompt + x.most, rated: x.most}
	if !x.shares {
		a.rated += x.prompt
	}
	if q.room > 0 {
		a.room = (x.prompt + x.most - 1 + q.page - 1) / q.page * q.page
	}
	return a
}

// counts reports whether tokens are bounded as such, and not by room alone.
func (q *queue) counts() bool { return q.room == 0 || q.asked > 0 }

// enter takes a ticket for each of several texts, or none.
func (q *queue) enter(name string, texts []demand) ([]*ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var sum amounts
	for _, x := range texts {
		sum.add(q.amounts(x))
	}
	switch {
	case q.closed:
		return nil, errDraining()
	case sum.tokens > q.Tokens && q.counts():
		return nil, badBody("the request may take %d tokens; this server takes %d at a time: ask for fewer", sum.tokens, q.Tokens)
	case q.room > 0 && sum.room > q.room:
		return nil, badBody("the request may take %d tokens, in pages of %d; this server's memory has room for %d: ask for fewer", sum.room, q.page, q.room)
	case len(texts) > q.most():
		return nil, badBody("the request is for %d texts; this server takes %d at a time", len(texts), q.most())
	}
	t := q.tenant(name)
	switch {
	case !q.shares(t, sum, q.most(), func(a *amounts) int { return a.places }):
		return nil, q.full("%d requests are waiting", max(q.total.places-q.slots, 0))
	case q.counts() && !q.shares(t, sum, q.Tokens, func(a *amounts) int { return a.tokens }):
		return nil, q.full("%d tokens are under way or waiting", q.total.tokens)
	case q.room > 0 && !q.shares(t, sum, q.room, func(a *amounts) int { return a.room }):
		return nil, q.full("those under way and waiting may come to have %d tokens of the %d that its memory has room for", q.total.room, q.room)
	}
	if err := t.takes(q.Rate, sum.rated, q.now()); err != nil {
		return nil, err
	}
	q.work()
	var list []*ticket
	for _, x := range texts {
		list = append(list, &ticket{q: q, t: t, takes: q.amounts(x)})
	}
	t.taken.add(sum)
	q.total.add(sum)
	return list, nil
}

// shares reports whether a tenant may take more of what there is a number of: there is enough for
// all, or it is within the tenant's share.
func (q *queue) shares(t *tenant, more amounts, most int, of func(*amounts) int) bool {
	if of(&q.total)+of(&more) <= most {
		return true
	}
	mine := of(&t.taken) + of(&more)
	wants := []int{mine}
	for _, o := range q.tenants {
		if o != t {
			wants = append(wants, of(&o.taken))
		}
	}
	return mine <= maxmin.Share(most, wants)
}

// most is how many texts there may be together, under way and waiting.
func (q *queue) most() int { return q.slots + q.Requests }

// work counts the time up to now, if something was under way.
func (q *queue) work() {
	now := q.now()
	if q.begun > 0 {
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
		perSlot := float64(q.total.tokens) / float64(max(q.total.places, 1))
		e.Retry = min(max(time.Duration(perSlot/rate*float64(time.Second)), time.Second), time.Minute)
	}
	return e
}

// tenant finds a tenant.
func (q *queue) tenant(name string) *tenant {
	t := q.tenants[name]
	if t == nil { // as many as there are keys
		t = &tenant{name: name}
		q.tenants[name] = t
	}
	return t
}

// begin says that a text has its first slot.
func (k *ticket) begin() {
	q := k.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if k.began || k.left {
		return
	}
	q.work()
	k.began = true
	q.begun++
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
	q.total.sub(k.takes)
	k.t.taken.sub(k.takes)
	k.t.tokens.give(q.Rate.Tokens, float64(k.takes.rated-used))
	if k.began {
		q.begun--
		q.done += used
	}
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

// load counts texts, and the tokens that they may come to have.
func (q *queue) load() (places, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total.places, q.total.tokens
}
