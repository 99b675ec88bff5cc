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
	cached int  // of fed, those that need not be read
	stop   int  // a step ends after so many, where something is kept; 0: nowhere
	chosen int  // tokens that were chosen
	waited int  // steps that began before it
	scored bool // logits of the prompt's tokens are wanted
}

// reads reports whether its prompt is being read.
func (j *job) reads() bool { return j.fed < j.prompt }

// room is how many tokens its sequence can come to have: the last one is not fed.
func (j *job) room() int { return j.prompt + j.most - 1 }

// part is what a step has of a request.
type part struct {
	*request
	tokens int
	row    bool // its next token is chosen after them
}

// rows is how many tokens of a part have logits that are wanted.
func (p *part) rows() int {
	switch {
	case p.scored && p.reads():
		return p.tokens
	case p.row:
		return 1
	}
	return 0
}

// queue has the requests that wait and those under way, each in the order of arrival.
// It decides, and does nothing: who has a slot and what a step gave, it is told.
type queue struct {
	Limits
	arrived          int
	waiting, running []*request
	room             int // of those under way
	share            share
}

// enter takes a request that has arrived.
func (q *queue) enter(r *request) {
	r.number = q.arrived
	q.arrived++
	q.waiting = append(q.waiting, r)
}

// admissible is the request that may begin now, or nil: the first that has room, unless
// one before it has lost patience.
func (q *queue) admissible() *request {
	if len(q.running) >= q.Slots {
		return nil
	}
	for _, r := range q.waiting {
		if q.Room == 0 || q.room+q.taken(&r.job) <= q.Room {
			return r
		}
		if r.waited >= q.Patience {
			return nil
		}
	}
	return nil
}

// begin moves a request from those that wait to those under way.
func (q *queue) begin(r *request) {
	q.waiting = without(q.waiting, r)
	at, _ := slices.BinarySearchFunc(q.running, r.number, func(x *request, n int) int { return x.number - n })
	q.running = slices.Insert(q.running, at, r)
	q.room += q.taken(&r.job)
}

// leave takes a request out, and reports whether it was under way.
func (q *queue) leave(r *request) (began bool) {
	if began = slices.Contains(q.running, r); began {
		q.running = without(q.running, r)
		q.room -= q.taken(&r.job)
	} else {
		q.waiting = without(q.waiting, r)
	}
	return began
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
		if !r.reads() {
			parts = append(parts, part{r, 1, true})
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
	i := slices.IndexFunc(q.running, func(r *request) bool { return r.reads() })
	if i < 0 {
		return parts
	}
	oldest := q.running[i]
	half := budget{max(left.tokens/2, min(left.tokens, q.Grain)), left.rows}
	kept := q.chunk(&oldest.job, half.most(oldest))
	left.take(oldest, kept)
	for r := q.after(oldest, nil); r != nil; r = q.after(oldest, r) {
		parts = q.read(parts, r, &left)
	}
	left.take(oldest, -kept)
	return q.read(parts, oldest, &left)
}

// budget is what is left of a step: tokens, and those of prompts whose logits are wanted.
type budget struct{ tokens, rows int }

// most is how many tokens of its prompt a request may read.
func (b *budget) most(r *request) int {
	if r.scored {
		return min(b.tokens, b.rows)
	}
	return b.tokens
}

// take counts tokens that a request reads.
func (b *budget) take(r *request, tokens int) {
	b.tokens -= tokens
	if r.scored {
		b.rows -= tokens
	}
}

// read appends a request's next chunk, if there is enough left for one.
func (q *queue) read(parts []part, r *request, left *budget) []part {
	n := q.chunk(&r.job, left.most(r))
	if n == 0 {
		return parts
	}
	left.take(r, n)
	return append(parts, part{r, n, r.fed+n == r.prompt})
}

// after is the prompt of which the least is left to be read, of those that have more left than another or came after
// it, but for the oldest; nil: there is none.
func (q *queue) after(oldest, last *request) (next *request) {
	before := func(a, b *request) bool {
		x, y := a.prompt-a.fed, b.prompt-b.fed
		return x < y || x == y && a.number < b.number
	}
	for _, r := range q.running {
		if r.reads() && r != oldest && (last == nil || before(last, r)) && (next == nil || before(r, next)) {
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

// ran says that a step has run: the tokens of its part are fed.
func (p *part) ran() {
	p.fed += p.tokens
	if p.row {
		p.chosen++
	}
}

// complete reports whether a request has all its tokens.
func (j *job) complete() bool { return j.chosen == j.most }
