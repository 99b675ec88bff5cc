package openai

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/krait-ml/krait/internal/maxmin"
)

// Queue bounds running and queued requests. The zero value has defaults.
type Queue struct {
	// Requests bounds the texts that wait for a slot; 0: 256. Tenants share this bound and that of
	// Tokens.
	Requests int
	// Tokens bounds the tokens of all running and queued texts: prompts and max_tokens. 0: the
	// capacity of the memory plan, or a million without a plan or attention. More than the plan's
	// capacity is an error.
	Tokens int
	// Rate bounds each tenant's rate.
	Rate Rate
}

// queue admits requests within bounds of texts, tokens and KV cache. The scheduler decides which
// text runs next.
//
// One tenant alone may use a bound entirely. With several, each tenant may use its max-min share
// (package maxmin), even if others already hold more than theirs. With n tenants the total can
// therefore reach 1 + 1/2 + … + 1/n times a bound. That costs only the memory of queued prompts: the
// scheduler keeps to the memory plan.
type queue struct {
	Queue
	given int // Queue.Tokens of the options
	slots int
	room  int // capacity of the KV cache in tokens; 0: no bound
	page  int // tokens of a KV page
	now   func() time.Time

	mu      sync.Mutex // of all below
	tenants map[string]*tenant
	total   amounts
	begun   int // texts that have had a slot
	closed  bool
	done    int           // tokens of texts that ended
	busy    time.Duration // time with running texts, up to since
	since   time.Time     // of the last change
}

// amounts is what texts take of the bounds.
type amounts struct {
	texts  int // running or queued
	tokens int // upper bound
	rated  int // tokens that count for the rate: a shared prompt once
	room   int // tokens in the KV cache, in whole pages
}

func (a *amounts) add(b amounts) {
	a.texts, a.tokens, a.rated, a.room = a.texts+b.texts, a.tokens+b.tokens, a.rated+b.rated, a.room+b.room
}

func (a *amounts) sub(b amounts) { a.add(amounts{-b.texts, -b.tokens, -b.rated, -b.room}) }

// tenant is the holder of a key. Without keys all clients are one tenant.
type tenant struct {
	name  string
	taken amounts

	requests, tokens bucket // of its rate
}

// demand is the size of a text. A text that shares its prompt with the text before it adds no
// prefill.
type demand struct {
	prompt, most int
	shares       bool
}

// ticket admits one text.
type ticket struct {
	q     *queue
	t     *tenant
	takes amounts
	began bool
	left  bool
}

func newQueue(limits Queue, slots int) *queue {
	given := limits.Tokens
	if limits.Requests == 0 {
		limits.Requests = 256
	}
	if limits.Tokens == 0 {
		limits.Tokens = 1_000_000
	}
	return &queue{Queue: limits, given: given, slots: slots, now: time.Now, tenants: map[string]*tenant{}}
}

// bind adds the bound of the memory plan: room tokens of KV cache, in pages.
func (q *queue) bind(room, page int) error {
	if room == 0 {
		return nil
	}
	switch q.room, q.page = room, page; {
	case q.given == 0:
		q.Tokens = room
	case q.given > room:
		return fmt.Errorf("it is %d; the memory plan has a KV cache for %d tokens: give at most that", q.given, room)
	}
	return nil
}

// amounts returns what a text takes. The model never processes its last token.
func (q *queue) amounts(x demand) amounts {
	a := amounts{texts: 1, tokens: x.prompt + x.most, rated: x.most}
	if !x.shares {
		a.rated += x.prompt
	}
	if q.room > 0 {
		a.room = (x.prompt + x.most - 1 + q.page - 1) / q.page * q.page
	}
	return a
}

// counts reports whether Tokens is a bound of its own beside the KV cache.
func (q *queue) counts() bool { return q.room == 0 || q.given > 0 }

// enter returns a ticket for each text, or admits none of them.
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
		return nil, badBody("prompt and max_tokens are %d tokens; this server's limit is %d: ask for fewer", sum.tokens, q.Tokens)
	case q.room > 0 && sum.room > q.room:
		return nil, badBody("prompt and max_tokens are %d tokens in KV pages of %d; this server's KV cache has %d: ask for fewer", sum.room, q.page, q.room)
	case len(texts) > q.most():
		return nil, badBody("the request asks for %d texts; at most %d fit this server's queue", len(texts), q.most())
	}
	t := q.tenant(name)
	switch {
	case !q.shares(t, sum, q.most(), func(a *amounts) int { return a.texts }):
		return nil, q.full("%d queued", max(q.total.texts-q.slots, 0))
	case q.counts() && !q.shares(t, sum, q.Tokens, func(a *amounts) int { return a.tokens }):
		return nil, q.full("running and queued texts may take %d tokens", q.total.tokens)
	case q.room > 0 && !q.shares(t, sum, q.room, func(a *amounts) int { return a.room }):
		return nil, q.full("running and queued texts may take %d tokens of the KV cache's %d", q.total.room, q.room)
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

// shares reports whether a tenant may take more of a bound: all fits, or it is within the tenant's
// share.
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

// most returns the bound of running and queued texts.
func (q *queue) most() int { return q.slots + q.Requests }

// work adds the time since the last change, if texts were running.
func (q *queue) work() {
	now := q.now()
	if q.begun > 0 {
		q.busy += now.Sub(q.since)
	}
	q.since = now
}

// full returns the error of a full queue. Retry-After follows from the measured tokens per second.
func (q *queue) full(format string, args ...any) error {
	e := coded(http.StatusTooManyRequests, "rate_limit_error", "queue_full", "the queue is full: "+format+"; retry later", args...)
	e.Retry = time.Second
	q.work()
	if rate := float64(q.done) / q.busy.Seconds(); rate > 0 { // before the first text ends it is 0 or NaN
		perSlot := float64(q.total.tokens) / float64(max(q.total.texts, 1))
		e.Retry = min(max(time.Duration(perSlot/rate*float64(time.Second)), time.Second), time.Minute)
	}
	return e
}

// tenant returns a tenant, which it adds if necessary.
func (q *queue) tenant(name string) *tenant {
	t := q.tenants[name]
	if t == nil { // at most one per key
		t = &tenant{name: name}
		q.tenants[name] = t
	}
	return t
}

// begin records that the text got its first slot.
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

// leave ends the text, which has used that many tokens.
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

// close rejects all further requests.
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

// load returns the number of texts, and the upper bound on their tokens.
func (q *queue) load() (texts, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total.texts, q.total.tokens
}
