package schedule

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/kernels"
)

// Engine is what a [Scheduler] asks of an engine.
type Engine interface {
	// Alloc takes a slot for a new sequence, Free gives it back.
	Alloc() (slot int, err error)
	Free(slot int) error
	// Save copies all that the sequence of a slot keeps between steps.
	Save(slot int) (Saved, error)
	// Step runs a batch and lets read see its results before another step can replace
	// them, also where the error is an [exec.Unchosen].
	Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error
}

// Saved is all that a sequence keeps between steps.
type Saved interface {
	// Restore lets the new sequence of a slot go on from it, to the last bit. It stays as it is.
	Restore(slot int) error
	Free()
}

// Cache keeps what was computed for beginnings of prompts: see session/cache.
type Cache interface {
	// Begin lets a new sequence go on from the beginning of its prompt that is kept, of
	// hit tokens, for its salt. Where mark is not 0, Keep is called when it has had so many.
	Begin(slot int, salt string, prompt []int) (hit, mark int, err error)
	// Given is Begin for a sequence that has the first fed tokens of its prompt from elsewhere, or
	// is to read all of them.
	Given(slot int, salt string, prompt []int, fed int) (mark int)
	// Keep keeps the states of a sequence as they are, and returns where it is called next, 0 for
	// nowhere.
	Keep(slot int) (mark int)
	// Move tells the cache that a sequence resumed in another slot, Fork that a slot has a sequence
	// that was forked after its prompt.
	Move(from, to int)
	Fork(slot int, salt string, prompt []int)
	// End says that the sequence ends, and which tokens it was fed, or the first of them, after
	// which Keep was last called; wasted, that nothing is to be kept of it.
	End(slot int, tokens []int, wasted bool)
}

// Scheduler runs requests on an engine. Its methods may be called from several
// goroutines. While there are requests, one goroutine of its own runs the steps.
type Scheduler struct {
	engine Engine
	limits Limits
	cache  Cache          // may be nil
	live   sync.WaitGroup // the goroutine that runs the steps, and calls of Fetch

	mu      sync.Mutex // of all below
	queue   queue
	running bool
	closed  bool
	done    Load
	parts   []part // of the step under way
	abort   context.CancelFunc

	// Of the goroutine that runs the steps.
	ctx    context.Context // of a step
	batch  exec.Batch
	choose []exec.Choice
	chosen []int32
	keep   func(*exec.Results) error
}

// New makes a scheduler for an engine that has as many slots as the limits say, or
// fewer while others have some. The cache may be nil.
func New(e Engine, l Limits, c Cache) (*Scheduler, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	s := &Scheduler{engine: e, limits: l, cache: c, queue: queue{Limits: l, share: share{most: l.PromptShare}}}
	s.keep = func(r *exec.Results) error {
		s.chosen = append(s.chosen[:0], r.Tokens...)
		return nil
	}
	return s, nil
}

// Load is what a scheduler has to do, and what it has done.
type Load struct {
	Waiting, Running int   // requests
	Steps, Tokens    int64 // that ran, and that they had
	Paused           int64 // how often a request gave its slot to another tenant's
	Restarted        int64 // how often one gave up its state, too, and computed it again
}

// Load counts.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.done
	l.Waiting, l.Running = len(s.queue.waiting), len(s.queue.running)
	for _, r := range slices.Concat(s.queue.waiting, s.queue.running) {
		l.Waiting += len(r.forks)
	}
	return l
}

// Close waits for the step and the calls of [Request.Fetch] under way, and ends all requests, and
// those that come later, with [exec.ErrClosed].
func (s *Scheduler) Close() {
	s.mu.Lock()
	s.closed = true
	s.wake() // nothing runs where all wait for a Fetch
	s.mu.Unlock()
	s.live.Wait()
}

// arrive takes a request, and those that go on from its prompt.
func (s *Scheduler) arrive(r *request, forks ...*request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return exec.ErrClosed
	}
	s.queue.enter(r, forks...)
	s.wake()
	return nil
}

// wake sees to it that somebody runs steps.
func (s *Scheduler) wake() {
	if !s.running {
		s.running = true
		s.live.Go(s.run)
	}
}

// run runs steps until no request is left that can go on.
func (s *Scheduler) run() {
	for s.prepare() {
		begun := time.Now()
		err := s.engine.Step(s.ctx, &s.batch, s.keep)
		s.settle(err, time.Since(begun))
	}
}

// prepare ends requests that are not wanted, begins those that can, and makes the batch
// of the next step. It reports whether there is one.
func (s *Scheduler) prepare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	s.arrivals()
	for {
		s.queue.regain()
		s.admit()
		if s.parts = s.queue.next(s.parts); len(s.parts) > 0 {
			break
		}
		r := s.queue.stuck()
		if r == nil { // who waits, waits for a Fetch: the first in an empty house begins, or has failed
			s.running = false
			return false
		}
		s.restart(r)
	}
	s.queue.began()
	if s.ctx == nil || s.ctx.Err() != nil {
		s.ctx, s.abort = context.WithCancel(context.Background())
	}
	s.fill()
	return true
}

// sweep ends requests that were cancelled, and all when the scheduler is closed.
func (s *Scheduler) sweep() {
	var out []*request
	for _, list := range [][]*request{s.queue.waiting, s.queue.running} {
		for _, r := range list {
			for _, f := range r.forks {
				if s.unwanted(f) {
					out = append(out, f)
				}
			}
			if s.unwanted(r) {
				out = append(out, r)
			}
		}
	}
	for _, r := range out {
		if s.closed {
			s.end(r, exec.ErrClosed)
		} else {
			s.end(r, r.ctx.Err())
		}
	}
}

// unwanted reports whether a request is to end now: one whose Fetch is under way ends after it.
func (s *Scheduler) unwanted(r *request) bool {
	return !r.fetching && (s.closed || r.ctx.Err() != nil)
}

// admit gives slots to requests that wait. One that gets no slot, since others than this
// scheduler's requests have them, waits while there are requests that will give theirs back.
func (s *Scheduler) admit() {
	for {
		r, victim := s.queue.admissible()
		if r == nil {
			return
		}
		if victim != nil {
			s.pause(victim) // which may change who has room
			continue
		}
		slot, err := s.engine.Alloc()
		switch {
		case err == nil:
			s.start(r, slot)
		case len(s.queue.running) > 0:
			return
		default:
			s.end(r, err)
		}
	}
}

// start lets a request run in a slot.
func (s *Scheduler) start(r *request, slot int) {
	was := r.slot
	r.slot = slot
	s.queue.begin(r)
	if r.saved != nil {
		s.resume(r, was)
		return
	}
	if !r.told {
		r.told = true
		for _, x := range append([]*request{r}, r.forks...) {
			if x.OnBegin != nil {
				x.put(event{tell: func(int) { x.OnBegin() }})
			}
		}
	}
	if r.Fetch != nil && r.chosen == 0 {
		r.pending = true
		r.put(event{tell: func(int) { s.fetch(r) }})
		return
	}
	s.recall(r)
}

// fetch brings the beginning of a request's prompt from elsewhere. It is called by who reads the
// tokens.
func (s *Scheduler) fetch(r *request) {
	s.mu.Lock()
	r.fetching = r.ctx.Err() == nil && r.pending && !s.closed
	if !r.fetching {
		s.mu.Unlock()
		return
	}
	s.live.Add(1) // Close waits for it
	defer s.live.Done()
	s.mu.Unlock()
	from, err := r.Fetch()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.from, r.failed, r.fetching, r.fetched = from, err, false, true
	s.wake()
}

// arrivals lets requests go on whose Fetch has returned.
func (s *Scheduler) arrivals() {
	for i := len(s.queue.running) - 1; i >= 0; i-- { // one that ends moves those behind it
		r := s.queue.running[i]
		if !r.fetched {
			continue
		}
		r.fetched, r.pending = false, false
		if r.failed != nil {
			s.end(r, r.failed)
		} else {
			s.recall(r)
		}
	}
}

// recall lets a request begin with what it brings, or else with what the cache has of its prompt.
func (s *Scheduler) recall(r *request) {
	var err error
	switch {
	case r.chosen > 0: // it is computed again, as it was
		return
	case r.from != nil:
		from := r.from
		r.from = nil
		if r.fed, err = from.Begin(r.slot); err == nil && s.cache != nil {
			r.stop = s.cache.Given(r.slot, r.Salt, r.Prompt, r.fed)
		}
	case s.cache == nil:
	case r.scored:
		r.stop = s.cache.Given(r.slot, r.Salt, r.Prompt, 0)
	default:
		if r.fed, r.stop, err = s.cache.Begin(r.slot, r.Salt, r.Prompt); err == nil && r.fed > 0 && r.OnCached != nil {
			r.put(event{read: r.fed, tell: r.OnCached})
		}
	}
	if r.cached = r.fed; err != nil {
		s.end(r, err)
	}
}

// fill makes the batch of the parts.
func (s *Scheduler) fill() {
	b := &s.batch
	b.Sequences, s.choose = b.Sequences[:0], s.choose[:0]
	for _, p := range s.parts {
		q := exec.Sequence{Slot: p.slot}
		if p.reads() {
			q.Tokens = p.Prompt[p.fed : p.fed+p.tokens]
		} else {
			q.Tokens = p.out[p.fed-p.prompt:][:1]
		}
		s.fillRows(&p, &q)
		b.Sequences = append(b.Sequences, q)
	}
	if b.Choose, b.Want = s.choose, nil; len(s.choose) == 0 {
		b.Choose, b.Want = nil, nothing
	}
}

// fillRows says which logits of a part are wanted, and what for.
func (s *Scheduler) fillRows(p *part, q *exec.Sequence) {
	switch {
	case p.scores():
		for i := range p.tokens {
			if p.fed+i+1 < p.prompt {
				q.Rows = append(q.Rows, i)
				s.choose = append(s.choose, p.Score(p.fed+i))
			}
		}
	case !p.row:
		q.Rows = noRows
	}
	if !p.row {
		return
	}
	s.choose = append(s.choose, p.Choose())
	if q.Rows != nil || len(p.forks) > 0 {
		q.Rows = append(q.Rows, p.tokens-1)
	}
	for _, f := range p.forks {
		q.Rows = append(q.Rows, p.tokens-1)
		s.choose = append(s.choose, f.Choose())
	}
}

// What is wanted of chunks in the middle of prompts.
var (
	noRows  = []int{}
	nothing = []string{}
)

// settle gives the requests of a step what it gave. Where a step fails, all that were
// in it end with its error, since their states are lost; where only some tokens could
// not be chosen, only their requests do.
func (s *Scheduler) settle(failed error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.took(s.parts, took)
	lost := failed != nil && exec.AsUnchosen(failed) == nil
	now, row := time.Now(), 0
	for _, p := range s.parts {
		if lost {
			if p.row {
				s.fork(p.request, nil, failed, now)
			}
			s.end(p.request, cmp.Or(p.ctx.Err(), failed))
			continue
		}
		s.done.Tokens += int64(p.tokens)
		n := p.rows() // before it is fed
		s.advance(p, now, s.chosen[row:][:n])
		row += n
	}
	if !lost {
		s.done.Steps++
	}
	clear(s.parts)
	s.parts = s.parts[:0]
}

// advance takes a request on by its part of a step, whose rows chose some tokens: the last is
// the next, if there is to be one, but for those of its forks.
func (s *Scheduler) advance(p part, now time.Time, chosen []int32) {
	read := p.reads() && p.chosen == 0
	p.feed()
	if read && p.OnPrompt != nil {
		p.put(event{read: p.fed, tell: p.OnPrompt})
	}
	if read && p.fed == p.stop {
		p.stop = s.cache.Keep(p.slot)
	}
	if !p.row {
		for _, c := range chosen {
			if _, err := kernels.Token(c); err != nil {
				s.end(p.request, err)
				return
			}
		}
		return
	}
	mine := len(chosen) - len(p.forks)
	s.fork(p.request, chosen[mine:], nil, now)
	for _, c := range chosen[:mine-1] {
		if _, err := kernels.Token(c); err != nil {
			s.end(p.request, err)
			return
		}
	}
	s.accept(p.request, chosen[mine-1], now)
}

// accept gives a request the token that was chosen for it, which may be its last.
func (s *Scheduler) accept(r *request, chosen int32, now time.Time) {
	id, err := kernels.Token(chosen)
	if err != nil {
		s.end(r, err)
		return
	}
	if r.chosen <= len(r.Forced) { // which counts this one
		id = r.Forced[r.chosen-1]
	}
	r.put(event{Token: Token{id, now}})
	r.out = append(r.out, id)
	last := r.Accept(id)
	s.see(r, last)
	switch {
	case last:
		s.end(r, nil)
	case r.complete():
		s.end(r, r.full)
	}
}

// see lets the cache keep the states after the tokens that are seen whole where the last one may
// not be, and leaves these alone to it where a request has ended.
func (s *Scheduler) see(r *request, last bool) {
	if s.cache == nil || r.Final == nil {
		return
	}
	switch seen := r.Final(); {
	case last:
		r.out = r.out[:min(seen+1, len(r.out))] // the last one was not fed, or is not seen
	case seen == r.chosen-1 && !r.complete() && r.saved == nil:
		s.cache.Keep(r.slot)
	}
}

// end takes a request out, gives back what it has and then tells who reads it.
func (s *Scheduler) end(r *request, err error) {
	r.unhook()
	r.cancel()
	if r.from != nil {
		r.from.Free()
	}
	if s.queue.leave(r) {
		if err == nil && r.OnEnd != nil {
			err = r.OnEnd(r.slot)
		}
		s.remember(r, err == nil)
		if e := s.engine.Free(r.slot); err == nil {
			err = e
		}
	} else if r.saved != nil {
		s.remember(r, false)
		s.release(r)
	}
	r.stream.end(err)
}

// remember lets the cache take in a request that is to end: all that it was fed, if that
// went well.
func (s *Scheduler) remember(r *request, well bool) {
	switch {
	case s.cache == nil:
	case well: // the last token was not fed
		s.cache.End(r.slot, slices.Concat(r.Prompt, r.out[:len(r.out)-1]), false)
	default:
		s.cache.End(r.slot, nil, true)
	}
}

// interrupt stops the step under way where all that are in it were cancelled, and sees to it that
// those that are in none end.
func (s *Scheduler) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.ctx.Err() == nil || slices.ContainsFunc(p.forks, func(f *request) bool { return f.ctx.Err() == nil }) {
			return
		}
	}
	if len(s.parts) > 0 {
		s.abort()
	} else if len(s.queue.waiting)+len(s.queue.running) > 0 {
		s.wake()
	}
}
