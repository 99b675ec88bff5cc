package schedule

import (
	"slices"
	"time"
)

// job is the part of a request that policy depends on.
type job struct {
	number int  // order of arrival
	prompt int  // tokens of the prompt
	most   int  // tokens to generate at most
	fed    int  // tokens in the state: processed, cached or fetched
	cached int  // tokens of the prompt that were not computed for this request
	stop   int  // a chunk ends after this token, for a snapshot; 0: none
	chosen int  // tokens generated
	waited int  // steps that started while it was queued
	ran    int  // tokens processed since it got its slot
	lost   int  // tokens of the state that was dropped last; they are recomputed
	held   int  // room
	scored bool // logits of the prompt's tokens are computed
	begun  bool // active: it had a slot, or its prompt was prefilled by another; it holds room
	// pending: it has a slot and waits for Fetch.
	pending bool

	of     *tenant
	forks  []*request // share its prompt, and wait for its prefill
	leader *request   // prefills the prompt for it
}

// prefills reports whether it has prompt tokens to process.
func (j *job) prefills() bool { return j.fed < j.prompt }

// room returns the maximum length of its sequence: the last token is not fed.
func (j *job) room() int { return j.prompt + j.most - 1 }

// ends reports whether a token is chosen after that many more tokens.
func (j *job) ends(tokens int) bool { return j.fed+tokens == j.prompt+j.chosen }

// part is the tokens of a request in a step.
type part struct {
	*request
	tokens int
	row    bool // a token is chosen after them
}

// rows returns the number of choices of a part, of scored tokens and forks, too: each fork chooses
// its first token after the last of the prompt.
func (p *part) rows() int {
	n := 0
	if p.row {
		n = 1 + len(p.forks) + p.trial.drafts()
	}
	if p.scores() {
		n += p.tokens
		if p.row {
			n--
		}
	}
	return n
}

// scores reports whether logits of the next prompt tokens are computed.
func (j *job) scores() bool { return j.scored && j.prefills() && j.chosen == 0 }

// queue has the queued and running requests, each in order of arrival. It is pure policy: the
// scheduler reports slots and step results to it.
type queue struct {
	Limits
	count     int // of requests so far
	tenants   map[string]*tenant
	clock     int        // see least
	waiting   []*request // some are active: paused, or forks
	running   []*request
	held      int // of Room
	snapshots int // saved states of requests without slots
	share     share
	pace      pace

	order   []*tenant  // scratch of admissible
	lacking []*request // scratch of regain
}

// enter queues a request, and others that share its prompt.
func (q *queue) enter(r *request, forks ...*request) {
	for _, x := range append([]*request{r}, forks...) {
		x.number = q.count
		q.count++
		x.of = q.tenant(x.Tenant)
		x.of.here++
		x.of.wants += q.taken(&x.job)
		if x != r {
			x.leader = r
		}
	}
	r.forks = forks
	q.waiting = append(q.waiting, r)
}

// begin gives a queued request a slot, and room if it is new.
func (q *queue) begin(r *request) {
	q.waiting = without(q.waiting, r)
	q.running = inserted(q.running, r)
	q.start(r)
	r.of.running++
	r.ran = 0
}

// start gives a new request room.
func (q *queue) start(r *request) {
	if !r.begun && q.Room > 0 {
		q.take(r, q.grant(r))
	}
	r.begun = true
}

// pause takes the slot of a request, which keeps its room.
func (q *queue) pause(r *request) {
	q.running = without(q.running, r)
	q.waiting = inserted(q.waiting, r)
	r.of.running--
}

// restart takes the room of a queued request. Its state will be recomputed, in the same chunks.
func (q *queue) restart(r *request) {
	q.hold(r, 0)
	r.lost = max(r.lost, r.fed)
	r.begun, r.fed, r.stop, r.waited = false, 0, r.cached, 0
}

// leave removes a request, and reports whether it had a slot.
func (q *queue) leave(r *request) (running bool) {
	switch running = slices.Contains(q.running, r); {
	case running:
		q.running = without(q.running, r)
		r.of.running--
	case r.leader != nil:
		r.leader.forks = without(r.leader.forks, r)
	default:
		q.waiting = without(q.waiting, r)
	}
	q.hold(r, 0)
	q.lead(r.forks)
	r.forks = nil
	r.of.here--
	r.of.wants -= q.taken(&r.job)
	q.rest(r.of)
	return running
}

// lead makes the first of some forks prefill the prompt for the others.
func (q *queue) lead(forks []*request) {
	if len(forks) == 0 {
		return
	}
	r := forks[0]
	r.leader, r.forks = nil, forks[1:]
	for _, f := range r.forks {
		f.leader = r
	}
	q.waiting = inserted(q.waiting, r)
}

// fork queues the forks of a request after its prefill.
func (q *queue) fork(r *request) (forks []*request) {
	forks, r.forks = r.forks, nil
	for _, f := range forks {
		f.leader, f.fed, f.cached = nil, r.fed, r.cached
		q.waiting = inserted(q.waiting, f)
	}
	return forks
}

// split prepares the forks of a request whose prompt ends in the next step: there must be memory
// for a copy of its state, and room for each. The other forks prefill the prompt again.
func (q *queue) split(r *request) {
	n := 0
	for ; n < len(r.forks); n++ {
		f := r.forks[n]
		if !f.begun && (n == 0 && q.snapshots == q.Snapshots || !q.fits(f)) {
			break
		}
		if n == 0 && !f.begun {
			q.snapshots++
		}
		q.start(f)
	}
	if n < len(r.forks) {
		rest := slices.Clone(r.forks[n:])
		r.forks = r.forks[:n]
		q.lead(rest)
	}
}

// older compares requests by their arrival.
func older(a, b *request) int { return a.number - b.number }

func inserted(list []*request, r *request) []*request {
	at, _ := slices.BinarySearchFunc(list, r, older)
	return slices.Insert(list, at, r)
}

func without(list []*request, r *request) []*request {
	if i := slices.Index(list, r); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// mixedPrefill bounds the prompt tokens of a step beside decode, with a PromptShare: sequences wait
// for such a step, and a matmul of 128 rows is about as fast per row as a larger one.
const mixedPrefill = 128

// next appends the parts of the next step: a token of each decoding sequence, and chunks of
// prompts.
func (q *queue) next(parts []part) []part {
	left := budget{q.Tokens, q.Rows}
	for _, r := range q.running {
		if !r.prefills() && !r.pending && !q.stalled(r) {
			parts = append(parts, part{r, 1, r.ends(1)})
			left.tokens--
		}
	}
	if !q.share.prefills(len(parts) > 0) {
		return parts
	}
	if q.PromptShare > 0 {
		if len(parts) > 0 {
			left.tokens = min(left.tokens, max(mixedPrefill, q.Grain))
		}
		return q.shortFirst(parts, left)
	}
	for _, r := range q.running {
		parts = q.prefill(parts, r, &left)
	}
	return parts
}

// shortFirst appends the other prompts by remaining length, and then the oldest with at least half
// of the budget: a short prompt does not wait for a long one, which ends nevertheless.
func (q *queue) shortFirst(parts []part, left budget) []part {
	i := slices.IndexFunc(q.running, (*request).ready)
	if i < 0 {
		return parts
	}
	oldest := q.running[i]
	half := budget{max(left.tokens/2, min(left.tokens, q.Grain)), left.rows}
	reserved := half.of(oldest, q.chunkOf(oldest, half))
	left.tokens, left.rows = left.tokens-reserved.tokens, left.rows-reserved.rows
	for r := q.after(oldest, nil); r != nil; r = q.after(oldest, r) {
		parts = q.prefill(parts, r, &left)
	}
	left.tokens, left.rows = left.tokens+reserved.tokens, left.rows+reserved.rows
	return q.prefill(parts, oldest, &left)
}

// ready reports whether a running request can prefill.
func (r *request) ready() bool { return r.prefills() && !r.pending }

// budget is the rest of a step: tokens, and rows of logits of prompts.
type budget struct{ tokens, rows int }

// of returns the cost of a chunk.
func (budget) of(r *request, tokens int) (b budget) {
	b.tokens = tokens
	if r.scores() {
		b.rows = tokens
	}
	if tokens > 0 && r.ends(tokens) {
		b.rows += r.choosers()
	}
	return b
}

// prefill appends a request's next chunk, if the budget allows one.
func (q *queue) prefill(parts []part, r *request, left *budget) []part {
	if !r.ready() {
		return parts
	}
	n := q.chunkOf(r, *left)
	if n == 0 {
		return parts
	}
	if r.ends(n) {
		q.split(r)
	}
	cost := left.of(r, n)
	left.tokens, left.rows = left.tokens-cost.tokens, left.rows-cost.rows
	return append(parts, part{r, n, r.ends(n)})
}

// choosers returns the number of requests that choose from the last row of a prompt, if several do.
func (r *request) choosers() int {
	if len(r.forks) == 0 {
		return 0
	}
	return 1 + len(r.forks)
}

// chunkOf returns the length of the next chunk of a request within a budget.
func (q *queue) chunkOf(r *request, left budget) int {
	if r.scores() {
		left.tokens = min(left.tokens, left.rows-r.choosers())
	}
	n := q.chunk(&r.job, max(left.tokens, 0))
	if left.of(r, n).rows > left.rows {
		return 0
	}
	return n
}

// after returns the next request to prefill after the last one, by remaining prompt and arrival,
// without the oldest; nil: there is none.
func (q *queue) after(oldest, last *request) (next *request) {
	before := func(a, b *request) bool {
		x, y := a.prompt-a.fed, b.prompt-b.fed
		return x < y || x == y && a.number < b.number
	}
	for _, r := range q.running {
		if r.ready() && r != oldest && (last == nil || before(last, r)) && (next == nil || before(r, next)) {
			next = r
		}
	}
	return next
}

// chunk returns the length of the next chunk of a prompt if a step has that many tokens left: up to
// the prompt's end, to its stop, or to a multiple of the grain.
func (q *queue) chunk(j *job, left int) int {
	rest := j.prompt - j.fed
	if j.fed < j.stop {
		rest = j.stop - j.fed
	}
	n := min(rest, left, q.Longest())
	if n < rest {
		n -= (j.fed + n) % q.Grain
	}
	return max(n, 0)
}

// took records the time of a step.
func (q *queue) took(parts []part, time time.Duration) {
	prefill := slices.ContainsFunc(parts, func(p part) bool { return p.prefills() })
	decode := slices.ContainsFunc(parts, func(p part) bool { return !p.prefills() })
	q.share.ran(time, decode, prefill)
	if !prefill {
		drafts := 0
		for _, p := range parts {
			drafts += p.trial.drafts()
		}
		q.pace.ran(len(parts), drafts, time)
	}
}

// began records the start of a step for queued requests.
func (q *queue) began() {
	for _, r := range q.waiting {
		r.waited++
	}
}

// promptTokens is how many prefill tokens count as one decoded token: they share a pass.
const promptTokens = 8

// feed records the tokens of a part after its step.
func (p *part) feed() {
	prefills := p.prefills()
	if prefills {
		p.of.served += (p.tokens + promptTokens - 1) / promptTokens
	} else {
		p.of.served += p.tokens
	}
	p.fed += p.tokens
	p.ran += p.tokens
	switch {
	case p.row && prefills:
		p.chosen++
	case p.row:
		p.chosen += p.tokens
	}
}

// complete reports whether a request has all of its tokens.
func (j *job) complete() bool { return j.chosen == j.most }
