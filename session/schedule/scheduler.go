package schedule

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/kernels"
)

// Engine is what a [Scheduler] asks of an engine.
type Engine interface {
	// Alloc takes a slot for a new sequence, Free frees it.
	Alloc() (slot int, err error)
	Free(slot int) error
	// Save copies the state of a sequence.
	Save(slot int) (Saved, error)
	// Step runs a batch, and calls read with its results before another step can replace them, also
	// if the error is an [exec.ChoiceError].
	Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error
	// Settle ends trials: it keeps the first tokens of each, and rolls back the others.
	Settle(ctx context.Context, kept []exec.Kept) error
}

// Saved is the saved state of a sequence.
type Saved interface {
	// Restore copies it to the new sequence of a slot, with the same bits.
	Restore(slot int) error
	Free()
}

// Cache is a prefix cache: see session/cache.
type Cache interface {
	// Begin restores the longest cached prefix of a prompt with its salt, of hit tokens, to a new
	// sequence. If mark is not 0, Keep is called after that many tokens. Breakpoints are depths that
	// the client expects to hit later, and messages the ends of messages.
	Begin(slot int, salt string, prompt, breakpoints, messages []int) (hit, mark int, err error)
	// Given is Begin for a sequence that already has the state of fed tokens, or that must prefill
	// all.
	Given(slot int, salt string, prompt, breakpoints, messages []int, fed int) (mark int)
	// Keep takes a snapshot of a sequence, and returns the next mark, or 0.
	Keep(slot int) (mark int)
	// Move tells the cache that a sequence resumed in another slot, Fork that the sequence of a
	// slot was forked after its prompt.
	Move(from, to int)
	Fork(slot int, salt string, prompt []int)
	// End ends a sequence. Tokens are all that it was fed, or the first of them, after which Keep
	// was last called. With wasted nothing is admitted.
	End(slot int, tokens []int, wasted bool)
}

// Scheduler runs requests on an engine. Its methods may be called from several goroutines. While
// there are requests, one goroutine runs the steps.
type Scheduler struct {
	engine Engine
	limits Limits
	cache  Cache          // may be nil
	live   sync.WaitGroup // the goroutine of the steps, and calls of Fetch
	now    func() time.Time
	manual bool // a Stepper runs the steps

	mu      sync.Mutex // guards all below
	queue   queue
	running bool
	closed  bool
	done    Load
	parts   []part // of the running step
	abort   context.CancelFunc
	turning *turning // batches that run in turns; nil: none do

	// Used by the goroutine of the steps only.
	ctx       context.Context // of a step
	batch     exec.Batch
	choose    []exec.Choice
	chosen    []int32
	keep      func(*exec.Results) error
	drafting  []*request // that have a guess
	hidden    bool       // a drafter reads the step's hidden states
	kept      []exec.Kept
	unsettled error // of Settle
}

// New makes a scheduler for an engine with the number of slots of the limits, of which other
// callers may have some. The cache may be nil.
func New(e Engine, l Limits, c Cache) (*Scheduler, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	s := &Scheduler{engine: e, limits: l, cache: c, now: time.Now, queue: queue{Limits: l, share: share{most: l.PromptShare}}}
	s.keep = func(r *exec.Results) error {
		s.chosen = append(s.chosen[:0], r.Tokens...)
		return s.readHidden(r)
	}
	return s, nil
}

// Load counts the requests and steps of a scheduler.
type Load struct {
	Waiting, Running int   // requests now
	Steps, Tokens    int64 // so far
	Paused           int64 // requests paused for another tenant
	Restarted        int64 // requests whose state was dropped and recomputed
	// Drafts counts drafts by their kind.
	Drafts map[string]Drafts
}

// Load returns the counts.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.done
	l.Drafts = maps.Clone(l.Drafts)
	l.Waiting, l.Running = len(s.queue.waiting), len(s.queue.running)
	for _, r := range slices.Concat(s.queue.waiting, s.queue.running) {
		l.Waiting += len(r.forks)
	}
	return l
}

// Close waits for the running step and calls of [Request.Fetch], and ends all requests, also later
// ones, with [exec.ErrClosed].
func (s *Scheduler) Close() {
	s.mu.Lock()
	s.closed = true
	s.wake() // no step runs while all requests wait for a Fetch
	s.mu.Unlock()
	s.live.Wait()
}

// add queues a request, and those that share its prompt.
func (s *Scheduler) add(r *request, forks ...*request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return exec.ErrClosed
	}
	s.queue.enter(r, forks...)
	s.wake()
	return nil
}

// wake starts the goroutine of the steps unless it runs.
func (s *Scheduler) wake() {
	if !s.running && !s.manual {
		s.running = true
		s.live.Go(s.run)
	}
}

// run runs steps until no request can continue.
func (s *Scheduler) run() {
	for s.prepare() {
		begun := s.now() // drafts take time, too
		if n := s.turns(); n > 1 && s.stepInTurns(n, begun) {
			continue
		}
		err := s.step()
		s.settle(err, s.now().Sub(begun))
	}
}

// step runs the parts of a step, with drafts.
func (s *Scheduler) step() error {
	s.fill()
	err := s.engine.Step(s.ctx, &s.batch, s.keep)
	if !lost(err) {
		s.verify()
	}
	return err
}

// lost reports whether an error of a step ends all of its requests.
func lost(err error) bool { return err != nil && exec.AsChoiceError(err) == nil }

// prepare ends cancelled requests, starts those that can run, and makes the parts of the next step.
// It reports whether there are any.
func (s *Scheduler) prepare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	s.finishFetches()
	for {
		s.queue.regain()
		s.admit()
		if s.parts = s.queue.next(s.parts); len(s.parts) > 0 {
			break
		}
		r := s.queue.stuck()
		if r == nil { // all wait for a Fetch
			s.running = false
			return false
		}
		s.restart(r)
	}
	s.queue.began()
	if s.ctx == nil || s.ctx.Err() != nil {
		s.ctx, s.abort = context.WithCancel(context.Background())
	}
	return true
}

// sweep ends cancelled requests, and all after Close.
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

// unwanted reports whether a request must end now; one ends after its Fetch.
func (s *Scheduler) unwanted(r *request) bool {
	return !r.fetching && (s.closed || r.ctx.Err() != nil)
}

// admit gives slots to queued requests. If other callers of the engine have the slots, a request
// waits for running ones to end.
func (s *Scheduler) admit() {
	for {
		r, victim := s.queue.admissible()
		if r == nil {
			return
		}
		if victim != nil {
			s.pause(victim) // this may change who has room
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

// start runs a request in a slot.
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
		now := s.now()
		for _, x := range append([]*request{r}, r.forks...) {
			if x.OnBegin != nil {
				x.put(event{call: func(int) { x.OnBegin(now) }})
			}
		}
	}
	if r.Fetch != nil && r.chosen == 0 {
		r.pending = true
		r.put(event{fetch: true, call: func(int) { s.fetch(r) }})
		return
	}
	s.recall(r)
}

// fetch calls a request's Fetch. It runs in the goroutine that reads the tokens.
func (s *Scheduler) fetch(r *request) {
	if !s.beginFetch(r) {
		return
	}
	var from Beginning
	err := errors.New("the request's Fetch did not return")
	defer func() { s.endFetch(r, from, err) }() // also if it panics: the reader waits for the request's end
	from, err = r.Fetch()
}

// beginFetch reports whether a request still needs its Fetch.
func (s *Scheduler) beginFetch(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.fetching = r.ctx.Err() == nil && r.pending && !s.closed; r.fetching {
		s.live.Add(1) // Close waits for it
	}
	return r.fetching
}

// endFetch takes the results of a request's Fetch.
func (s *Scheduler) endFetch(r *request, from Beginning, err error) {
	defer s.live.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.from, r.failed, r.fetching, r.fetched = from, err, false, true
	s.wake()
}

// finishFetches continues requests whose Fetch has returned.
func (s *Scheduler) finishFetches() {
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

// recall restores the fetched state of a request, or the longest prefix in the cache.
func (s *Scheduler) recall(r *request) {
	var err error
	switch {
	case r.chosen > 0: // recomputed in the same chunks
		return
	case r.from != nil:
		from := r.from
		r.from = nil
		if r.fed, err = from.Begin(r.slot); err == nil && s.cache != nil {
			r.stop = s.cache.Given(r.slot, r.Salt, r.Prompt, r.Breakpoints, r.Messages, r.fed)
		}
	case s.cache == nil:
	case r.scored:
		r.stop = s.cache.Given(r.slot, r.Salt, r.Prompt, r.Breakpoints, r.Messages, 0)
	default:
		if r.fed, r.stop, err = s.cache.Begin(r.slot, r.Salt, r.Prompt, r.Breakpoints, r.Messages); err == nil && r.fed > 0 && r.OnCached != nil {
			r.put(event{tokens: r.fed, call: r.OnCached})
		}
	}
	if r.cached = r.fed; err != nil {
		s.end(r, err)
	}
}

// fill makes drafts, and the batch of a step.
func (s *Scheduler) fill() {
	s.draft()
	b := &s.batch
	b.Sequences, s.choose = b.Sequences[:0], s.choose[:0]
	for _, p := range s.parts {
		q := exec.Sequence{Slot: p.slot}
		switch {
		case p.prefills():
			q.Tokens = p.Prompt[p.fed : p.fed+p.tokens]
			s.fillRows(&p, &q)
		case p.trial.drafts() > 0:
			s.fillTrial(p.request, &q)
		default:
			q.Tokens = p.next()
			s.fillRows(&p, &q)
		}
		b.Sequences = append(b.Sequences, q)
	}
	if b.Choices, b.Outputs = s.choose, nil; len(s.choose) == 0 {
		b.Choices, b.Outputs = nil, noOutputs
	}
	if s.hidden = slices.ContainsFunc(s.parts, func(p part) bool { return p.readsHidden() != nil }); s.hidden {
		b.Outputs = hiddenOutputs
	}
}

// fillRows sets the rows of a part whose logits are computed, and their choices.
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
	s.choose = append(s.choose, p.Choose(nil))
	if q.Rows != nil || len(p.forks) > 0 {
		q.Rows = append(q.Rows, p.tokens-1)
	}
	for _, f := range p.forks {
		q.Rows = append(q.Rows, p.tokens-1)
		s.choose = append(s.choose, f.Choose(nil))
	}
}

// Chunks in the middle of prompts have no results.
var (
	noRows    = []int{}
	noOutputs = []string{}
)

// Steps of drafters that read hidden states have them beside the tokens chosen.
var hiddenOutputs = []string{exec.HiddenOutput}

// settle gives the requests of a step its results. If the step failed, all of its requests end with
// the error, since their states are lost; if only some tokens could not be chosen, only their
// requests do.
func (s *Scheduler) settle(failed error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.took(s.parts, took)
	s.settleParts(s.parts, s.chosen, failed)
	clear(s.parts)
	s.parts = s.parts[:0]
}

// settleParts is settle for parts of a step and the tokens chosen in it.
func (s *Scheduler) settleParts(parts []part, chosen []int32, failed error) {
	lost := lost(failed)
	now, row := s.now(), 0
	for _, p := range parts {
		if lost {
			if p.row {
				s.fork(p.request, nil, failed, now)
			}
			s.end(p.request, cmp.Or(p.ctx.Err(), failed))
			continue
		}
		n := p.rows() // before it is fed
		if p.trial.drafts() > 0 {
			s.conclude(p, now)
		} else {
			s.done.Tokens += int64(p.tokens)
			s.advance(p, now, chosen[row:][:n])
		}
		row += n
	}
	if !lost {
		s.done.Steps++
	}
}

// advance advances a request by its part of a step. Of the tokens chosen for its rows the last ones
// are its forks', and the one before is its own.
func (s *Scheduler) advance(p part, now time.Time, chosen []int32) {
	prefill := p.prefills() && p.chosen == 0
	p.feed()
	if prefill && p.OnPrompt != nil {
		p.put(event{tokens: p.fed, call: p.OnPrompt})
	}
	if prefill && p.fed == p.stop {
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

// accept gives a request its chosen token, which may be its last.
func (s *Scheduler) accept(r *request, chosen int32, now time.Time) {
	if err := r.add(chosen); err != nil {
		s.end(r, err)
		return
	}
	s.tell(r, 1, now)
}

// add adds a chosen token to a request. An error says that none could be chosen.
func (r *request) add(chosen int32) error {
	id, err := kernels.Token(chosen)
	if err != nil {
		return err
	}
	if n := len(r.out); n < len(r.Forced) {
		id = r.Forced[n]
	}
	r.out = append(r.out, id)
	r.last = r.Accept(id)
	return nil
}

// tell gives the reader the last tokens of a request, which may be all.
func (s *Scheduler) tell(r *request, tokens int, now time.Time) {
	for _, id := range r.out[len(r.out)-tokens:] {
		r.put(event{Token: Token{id, now}})
	}
	s.see(r, r.last)
	switch {
	case r.last:
		s.end(r, nil)
	case r.complete():
		s.end(r, r.full)
	}
}

// keeps reports whether see takes a snapshot after the last token.
func (s *Scheduler) keeps(r *request) bool {
	return s.cache != nil && r.Final != nil && r.Final() == len(r.out)-1
}

// see takes a snapshot after the final tokens if the last one may still be removed from the text,
// and drops removed ones if the request has ended.
func (s *Scheduler) see(r *request, last bool) {
	if s.cache == nil || r.Final == nil {
		return
	}
	switch n := r.Final(); {
	case last:
		r.out = r.out[:min(n+1, len(r.out))] // the last one was not fed, or is removed
	case n == r.chosen-1 && !r.complete() && r.saved == nil:
		if keep := func() { s.cache.Keep(r.slot) }; !s.later(keep) {
			keep()
		}
	}
}

// end removes a request, frees its slot and state, and ends its stream.
func (s *Scheduler) end(r *request, err error) {
	if s.later(func() { s.end(r, err) }) {
		return
	}
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
	if r.Draft != nil {
		r.Draft.Close()
	}
	r.stream.end(err)
}

// remember ends a request in the cache, which may admit its tokens if it ended well.
func (s *Scheduler) remember(r *request, well bool) {
	switch {
	case s.cache == nil:
	case well: // the last token was not fed
		s.cache.End(r.slot, slices.Concat(r.Prompt, r.out[:len(r.out)-1]), false)
	default:
		s.cache.End(r.slot, nil, true)
	}
}

// interrupt stops the running step if all of its requests were cancelled, and wakes the scheduler
// to end those that are in no step.
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
