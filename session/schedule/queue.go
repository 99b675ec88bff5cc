package schedule

import (
	"slices"
	"time"
)

// job is a request as the rules see it.
type job struct {
	number int  // in the order of arrival
	prompt int  // tokens of the prompt
	most   int  // tokens that it may choose
	fed    int  // tokens that the engine was given, or a cache had
	cached int  // of the prompt, tokens that were not computed for this request
	stop   int  // a step ends after so many, where something is kept; 0: nowhere
	chosen int  // tokens that were chosen
	waited int  // steps that began before it
	ran    int  // tokens that it was fed since it has its slot
	lost   int  // tokens that it had been fed when its state was given up last; they are fed again
	held   int  // of the room
	scored bool // logits of the prompt's tokens are wanted
	begun  bool // it has had a slot, or its prompt was read by another: it holds room
	// pending says that it has a slot, and the beginning of its prompt is not there yet.
	pending bool

	of     *tenant
	forks  []*request // those that go on from its prompt, and wait for that to be read
	leader *request   // whose prompt it waits for, with others
}

// reads reports whether its prompt is being read.
func (j *job) reads() bool { return j.fed < j.prompt }

// room is how many tokens its sequence can come to have: the last one is not fed.
func (j *job) room() int { return j.prompt + j.most - 1 }

// ends reports whether its next token is chosen once it was fed so many more.
func (j *job) ends(tokens int) bool { return j.fed+tokens == j.prompt+j.chosen }

// part is what a step has of a request.
type part struct {
	*request
	tokens int
	row    bool // its next token is chosen after them
}

// rows is how many tokens are chosen after the tokens of a part, or looked at: each fork chooses
// its first after the last one.
func (p *part) rows() int {
	n := 0
	if p.row {
		n = 1 + len(p.forks)
	}
	if p.scores() {
		n += p.tokens
		if p.row {
			n--
		}
	}
	return n
}

// scores reports whether logits after the tokens of the prompt that are read next are looked at.
func (j *job) scores() bool { return j.scored && j.reads() && j.chosen == 0 }

// queue has the requests that wait and those with slots, each in the order of arrival. It is pure
// policy: the scheduler reports to it what happens, and does what it decides.
type queue struct {
	Limits
	arrived   int
	tenants   map[string]*tenant
	clock     int        // see least
	waiting   []*request // some have begun: they were paused, or are forks
	running   []*request
	held      int // of Room
	snapshots int // states that are kept for requests without slots
	share     share

	order   []*tenant  // memory of admissible
	lacking []*request // and of regain
}

// enter takes a request that has arrived, and others that are to go on from its prompt.
func (q *queue) enter(r *request, forks ...*request) {
	for _, x := range append([]*request{r}, forks...) {
		x.number = q.arrived
		q.arrived++
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

// begin gives a request that waits a slot, and where it is new room.
func (q *queue) begin(r *request) {
	q.waiting = without(q.waiting, r)
	q.running = inserted(q.running, r)
	q.start(r)
	r.of.running++
	r.ran = 0
}

// start gives a request that is new room.
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

// restart takes the room of a request that waits. All of it is to be computed again, cut where it
// was.
func (q *queue) restart(r *request) {
	q.hold(r, 0)
	r.lost = max(r.lost, r.fed)
	r.begun, r.fed, r.stop, r.waited = false, 0, r.cached, 0
}

// leave takes a request out, and reports whether it had a slot.
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

// lead lets the first of some forks read the prompt itself, for the others, too.
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

// fork takes forks from the one whose prompt was read. They wait for slots.
func (q *queue) fork(r *request) (forks []*request) {
	forks, r.forks = r.forks, nil
	for _, f := range forks {
		f.leader, f.fed, f.cached = nil, r.fed, r.cached
		q.waiting = inserted(q.waiting, f)
	}
	return forks
}

// split sees to it that those can go on that are to go on from a prompt whose end is read next:
// there must be memory for a copy of its state, and room for each. The others read it again.
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

// beside is how many tokens of prompts a step has at most beside sequences that are continued, where prompts have a share
// of the time: these wait for such a step to end, and a product of so many rows is about as fast per row as one of more.
const beside = 128

// next appends what the next step has: a token of each sequence that is continued, and of prompts what
// they may have beside these.
func (q *queue) next(parts []part) []part {
	left := budget{q.Tokens, q.Rows}
	for _, r := range q.running {
		if !r.reads() && !r.pending && !q.stalled(r) {
			parts = append(parts, part{r, 1, r.ends(1)})
			left.tokens--
		}
	}
	if !q.share.reads(len(parts) > 0) {
		return parts
	}
	if q.PromptShare > 0 {
		if len(parts) > 0 {
			left.tokens = min(left.tokens, max(beside, q.Grain))
		}
		return q.shortFirst(parts, left)
	}
	for _, r := range q.running {
		parts = q.read(parts, r, &left)
	}
	return parts
}

// shortFirst appends the oldest prompt's part, of half of what is left at least, and before that those of the others,
// by what is left of them: a short one does not wait until a long one is read, which ends nevertheless.
func (q *queue) shortFirst(parts []part, left budget) []part {
	i := slices.IndexFunc(q.running, (*request).ready)
	if i < 0 {
		return parts
	}
	oldest := q.running[i]
	half := budget{max(left.tokens/2, min(left.tokens, q.Grain)), left.rows}
	kept := half.of(oldest, q.chunkOf(oldest, half))
	left.tokens, left.rows = left.tokens-kept.tokens, left.rows-kept.rows
	for r := q.after(oldest, nil); r != nil; r = q.after(oldest, r) {
		parts = q.read(parts, r, &left)
	}
	left.tokens, left.rows = left.tokens+kept.tokens, left.rows+kept.rows
	return q.read(parts, oldest, &left)
}

// ready reports whether a request with a slot has a prompt to read.
func (r *request) ready() bool { return r.reads() && !r.pending }

// budget is what is left of a step: tokens, and those of prompts whose logits are looked at, or
// that others choose from.
type budget struct{ tokens, rows int }

// of is what a request takes by reading so many tokens.
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

// read appends a request's next chunk, if there is enough left for one.
func (q *queue) read(parts []part, r *request, left *budget) []part {
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
	took := left.of(r, n)
	left.tokens, left.rows = left.tokens-took.tokens, left.rows-took.rows
	return append(parts, part{r, n, r.ends(n)})
}

// choosers is how many requests choose from the last row of a prompt, if several do.
func (r *request) choosers() int {
	if len(r.forks) == 0 {
		return 0
	}
	return 1 + len(r.forks)
}

// chunkOf is how much of its prompt a request reads next, where so much of a step is left.
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

// after is the prompt of which the least is left to be read, of those that have more left than another or came after
// it, but for the oldest; nil: there is none.
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

// chunk is how much of its prompt a request reads next, where a step has so many tokens
// left: all up to its end, or to where it must stop, or up to a multiple of the grain.
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

// took says how long the step with these parts took.
func (q *queue) took(parts []part, time time.Duration) {
	read := slices.ContainsFunc(parts, func(p part) bool { return p.reads() })
	continued := slices.ContainsFunc(parts, func(p part) bool { return !p.reads() })
	q.share.ran(time, continued, read)
}

// began says that a step begins: those who wait grow older.
func (q *queue) began() {
	for _, r := range q.waiting {
		r.waited++
	}
}

// promptTokens of a prompt count as one that is decoded: they go through the model together.
const promptTokens = 8

// feed says that a step has run: the tokens of its part are fed.
func (p *part) feed() {
	if p.reads() {
		p.of.served += (p.tokens + promptTokens - 1) / promptTokens
	} else {
		p.of.served++
	}
	p.fed += p.tokens
	p.ran += p.tokens
	if p.row {
		p.chosen++
	}
}

// complete reports whether a request has all its tokens.
func (j *job) complete() bool { return j.chosen == j.most }
