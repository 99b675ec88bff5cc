// Package admit admits requests within bounds of texts, tokens, KV pages and rates, fairly among
// tenants. The scheduler decides which of the admitted texts runs next.
package admit

import (
	"fmt"
	"sync"
	"time"

	"github.com/krait-ml/krait/internal/maxmin"
)

// Limits bound running and queued requests. The zero value has defaults.
type Limits struct {
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

// Queue admits requests. Its methods may be called from several goroutines.
//
// One tenant alone may use a bound entirely. With several, each tenant may use its max-min share
// (package maxmin), even if others already hold more than theirs. With n tenants the total can
// therefore reach 1 + 1/2 + … + 1/n times a bound. That costs only the memory of queued prompts:
// the scheduler keeps to the memory plan.
type Queue struct {
	limits Limits
	given  int // Limits.Tokens before defaults
	slots  int
	room   int // capacity of the KV cache in tokens; 0: no bound
	page   int // tokens of a KV page
	now    func() time.Time

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

// Text is the size of a text in tokens. One that shares its prompt with the text before it adds no
// prefill.
type Text struct {
	Prompt, Max int
	Shares      bool
}

// Ticket admits one text.
type Ticket struct {
	q     *Queue
	t     *tenant
	takes amounts
	began bool
	left  bool
}

// New makes a queue for a number of slots, and a KV cache of room tokens in pages, by the memory
// plan; room 0: no such bound.
func New(limits Limits, slots, room, page int) (*Queue, error) {
	given := limits.Tokens
	if limits.Requests == 0 {
		limits.Requests = 256
	}
	if limits.Tokens == 0 {
		limits.Tokens = 1_000_000
	}
	q := &Queue{limits: limits, given: given, slots: slots, room: room, page: page, now: time.Now, tenants: map[string]*tenant{}}
	switch {
	case room == 0:
	case given == 0:
		q.limits.Tokens = room
	case given > room:
		return nil, fmt.Errorf("it is %d; the memory plan has a KV cache for %d tokens: give at most that", given, room)
	}
	return q, nil
}

// Pages rounds tokens up to whole pages.
func Pages(tokens, page int) int { return (tokens + page - 1) / page * page }

// amounts returns what a text takes. The model never processes its last token.
func (q *Queue) amounts(x Text) amounts {
	a := amounts{texts: 1, tokens: x.Prompt + x.Max, rated: x.Max}
	if !x.Shares {
		a.rated += x.Prompt
	}
	if q.room > 0 {
		a.room = Pages(x.Prompt+x.Max-1, q.page)
	}
	return a
}

// counts reports whether Tokens is a bound of its own beside the KV cache.
func (q *Queue) counts() bool { return q.room == 0 || q.given > 0 }

// Enter returns a ticket for each text of a tenant's request, or admits none of them: the error is
// an [Error].
func (q *Queue) Enter(name string, texts []Text) ([]*Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var sum amounts
	for _, x := range texts {
		sum.add(q.amounts(x))
	}
	switch {
	case q.closed:
		return nil, &Error{Kind: Draining, Message: drainingText, Retry: time.Second}
	case sum.tokens > q.limits.Tokens && q.counts():
		return nil, tooLarge("prompt and max_tokens are %d tokens; this server's limit is %d: ask for fewer", sum.tokens, q.limits.Tokens)
	case q.room > 0 && sum.room > q.room:
		return nil, tooLarge("prompt and max_tokens are %d tokens in KV pages of %d; this server's KV cache has %d: ask for fewer", sum.room, q.page, q.room)
	case len(texts) > q.Max():
		return nil, tooLarge("it is %d; at most %d sequences fit this server's queue", len(texts), q.Max())
	}
	t := q.tenant(name)
	switch {
	case !q.shares(t, sum, q.Max(), func(a *amounts) int { return a.texts }):
		return nil, q.full("%d queued", max(q.total.texts-q.slots, 0))
	case q.counts() && !q.shares(t, sum, q.limits.Tokens, func(a *amounts) int { return a.tokens }):
		return nil, q.full("running and queued texts may take %d tokens", q.total.tokens)
	case q.room > 0 && !q.shares(t, sum, q.room, func(a *amounts) int { return a.room }):
		return nil, q.full("running and queued texts may take %d tokens of the KV cache's %d", q.total.room, q.room)
	}
	if err := t.takes(q.limits.Rate, sum.rated, q.now()); err != nil {
		return nil, err
	}
	q.work()
	var list []*Ticket
	for _, x := range texts {
		list = append(list, &Ticket{q: q, t: t, takes: q.amounts(x)})
	}
	t.taken.add(sum)
	q.total.add(sum)
	return list, nil
}

// shares reports whether a tenant may take more of a bound: all fits, or it is within the tenant's
// share.
func (q *Queue) shares(t *tenant, more amounts, most int, of func(*amounts) int) bool {
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

// Max returns the bound of running and queued texts.
func (q *Queue) Max() int { return q.slots + q.limits.Requests }

// work adds the time since the last change, if texts were running.
func (q *Queue) work() {
	now := q.now()
	if q.begun > 0 {
		q.busy += now.Sub(q.since)
	}
	q.since = now
}

// full returns the error of a full queue. Retry follows from the measured tokens per second.
func (q *Queue) full(format string, args ...any) error {
	e := &Error{Kind: Full, Message: fmt.Sprintf("the queue is full: "+format+"; retry later", args...), Retry: time.Second}
	q.work()
	if rate := float64(q.done) / q.busy.Seconds(); rate > 0 { // before the first text ends it is 0 or NaN
		perSlot := float64(q.total.tokens) / float64(max(q.total.texts, 1))
		e.Retry = min(max(time.Duration(perSlot/rate*float64(time.Second)), time.Second), time.Minute)
	}
	return e
}

// tenant returns a tenant, which it adds if necessary.
func (q *Queue) tenant(name string) *tenant {
	t := q.tenants[name]
	if t == nil { // at most one per key
		t = &tenant{name: name}
		q.tenants[name] = t
	}
	return t
}

// Begin records that the text got its first slot.
func (k *Ticket) Begin() {
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

// Leave ends the text, which has used that many tokens.
func (k *Ticket) Leave(used int) {
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
	k.t.tokens.give(q.limits.Rate.Tokens, float64(k.takes.rated-used))
	if k.began {
		q.begun--
		q.done += used
	}
}

// Close rejects all further requests.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// Closed reports whether Close was called.
func (q *Queue) Closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Load returns the number of texts, and the upper bound on their tokens.
func (q *Queue) Load() (texts, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total.texts, q.total.tokens
}

// Limits returns the limits with defaults.
func (q *Queue) Limits() Limits { return q.limits }

// Name returns the tenant's name.
func (k *Ticket) Name() string { return k.t.name }

// Check returns the error of a request that the queue would reject with tokens as a lower bound of
// its prompt: it is rejected before it is tokenized.
func (q *Queue) Check(name string, tokens int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.limits.Tokens
	if q.room > 0 {
		most = min(most, q.room)
	}
	t := q.tenants[name]
	if t == nil {
		t = &tenant{}
	}
	switch {
	case q.closed:
		return &Error{Kind: Draining, Message: drainingText, Retry: time.Second}
	case tokens > most:
		return &Error{Kind: TooLong, Message: fmt.Sprintf("the prompt has at least %d tokens; this server's limit is %d: send fewer", tokens, most)}
	case !q.shares(t, amounts{texts: 1}, q.Max(), func(a *amounts) int { return a.texts }):
		return q.full("%d queued", max(q.total.texts-q.slots, 0))
	}
	trial := tenant{requests: t.requests, tokens: t.tokens} // a copy
	return trial.takes(q.limits.Rate, tokens, q.now())
}

// Charge counts a request that generates nothing against its tenant's rate, with an estimate of its
// tokens; correct replaces the estimate.
func (q *Queue) Charge(name string, estimate int) (correct func(tokens int), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tenant(name)
	if err := t.takes(q.limits.Rate, estimate, q.now()); err != nil {
		return nil, err
	}
	return func(tokens int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		t.tokens.give(q.limits.Rate.Tokens, float64(estimate-tokens))
	}, nil
}
