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
	// Step runs a batch and lets read see its results before another step can replace
	// them, also where the error is an [exec.Unchosen].
	Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error
}

// Cache keeps what was computed for beginnings of prompts: see serving/cache.
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
	live   sync.WaitGroup // the goroutine that runs the steps

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
}

// Load counts.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.done
	l.Waiting, l.Running = len(s.queue.waiting), len(s.queue.running)
	return l
}

// Close waits for the step under way, and ends all requests, and those that come later,
// with [exec.ErrClosed].
func (s *Scheduler) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.live.Wait()
}

// arrive takes a request, and sees to it that somebody runs steps.
func (s *Scheduler) arrive(r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return exec.ErrClosed
	}
	s.queue.enter(r)
	if !s.running {
		s.running = true
		s.live.Go(s.run)
	}
	return nil
}

// run runs steps until no request is left.
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
	s.admit()
	if s.parts = s.queue.next(s.parts); len(s.parts) == 0 {
		s.running = false // nobody waits either: who is first in an empty house begins, or has failed
		return false
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
	for _, list := range [][]*request{s.queue.waiting, s.queue.running} {
		for i := len(list) - 1; i >= 0; i-- { // ending one moves those behind it
			if r := list[i]; s.closed {
				s.end(r, exec.ErrClosed)
			} else if err := r.ctx.Err(); err != nil {
				s.end(r, err)
			}
		}
	}
}

// admit begins requests. One that gets no slot, since others than this scheduler's
// requests have them, waits while there are requests that will give theirs back.
func (s *Scheduler) admit() {
	for r := s.queue.admissible(); r != nil; r = s.queue.admissible() {
		slot, err := s.engine.Alloc()
		if err == nil {
			r.slot = slot
			s.queue.begin(r)
			s.recall(r)
			continue
		}
		if len(s.queue.running) > 0 {
			return
		}
		s.end(r, err)
	}
}

// recall lets a request begin with what it brings, or else with what the cache has of its prompt.
func (s *Scheduler) recall(r *request) {
	var err error
	if r.Begin != nil {
		if r.fed, err = r.Begin(r.slot); err != nil {
			s.end(r, err)
		} else if s.cache != nil {
			r.stop = s.cache.Given(r.slot, r.Salt, r.Prompt, r.fed)
		}
		r.cached = r.fed
		return
	}
	switch {
	case s.cache == nil:
		return
	case r.scored:
		r.stop = s.cache.Given(r.slot, r.Salt, r.Prompt, 0)
		return
	}
	if r.fed, r.stop, err = s.cache.Begin(r.slot, r.Salt, r.Prompt); err != nil {
		s.end(r, err)
	} else if r.cached = r.fed; r.fed > 0 && r.OnCached != nil {
		r.put(event{read: r.fed, tell: r.OnCached})
	}
}

// fill makes the batch of the parts.
func (s *Scheduler) fill() {
	b := &s.batch
	b.Sequences, s.choose = b.Sequences[:0], s.choose[:0]
	for _, p := range s.parts {
		q := exec.Sequence{Slot: p.slot, Tokens: p.last[:]}
		if p.reads() {
			q.Tokens = p.Prompt[p.fed : p.fed+p.tokens]
		}
		switch n := p.rows(); {
		case n == 0:
			q.Rows = noRows
		case p.scored && p.reads():
			for i := range n {
				q.Rows = append(q.Rows, i)
				if p.fed+i+1 < p.prompt {
					s.choose = append(s.choose, p.Score(p.fed+i))
				}
			}
		}
		if p.row {
			s.choose = append(s.choose, p.Choose())
		}
		b.Sequences = append(b.Sequences, q)
	}
	if b.Choose, b.Want = s.choose, nil; len(s.choose) == 0 {
		b.Choose, b.Want = nil, nothing
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
// the next, if there is to be one.
func (s *Scheduler) advance(p part, now time.Time, chosen []int32) {
	read := p.reads()
	p.ran()
	if read && p.OnPrompt != nil {
		p.put(event{read: p.fed, tell: p.OnPrompt})
	}
	if read && p.fed == p.stop {
		p.stop = s.cache.Keep(p.slot)
	}
	id := 0
	for _, c := range chosen {
		var err error
		if id, err = kernels.Token(c); err != nil {
			s.end(p.request, err)
			return
		}
	}
	if !p.row {
		return
	}
	if p.chosen <= len(p.Forced) { // which counts this one
		id = p.Forced[p.chosen-1]
	}
	p.last[0] = id
	p.put(event{Token: Token{id, now}})
	if s.cache != nil {
		p.out = append(p.out, id)
	}
	last := p.Accept(id)
	s.see(p.request, last)
	switch {
	case last:
		s.end(p.request, nil)
	case p.complete():
		s.end(p.request, p.full)
	}
}

// see lets the cache keep the states after the tokens that are seen whole where the last one may
// not be, and leaves these alone to it where a request has ended.
func (s *Scheduler) see(r *request, last bool) {
	if s.cache == nil || r.Seen == nil {
		return
	}
	switch seen := r.Seen(); {
	case last:
		r.out = r.out[:min(seen+1, len(r.out))] // the last one was not fed, or is not seen
	case seen == r.chosen-1 && !r.complete():
		s.cache.Keep(r.slot)
	}
}

// end takes a request out, gives its slot back and then tells who reads it.
func (s *Scheduler) end(r *request, err error) {
	r.unhook()
	r.cancel()
	if began := s.queue.leave(r); began {
		if err == nil && r.OnRead != nil {
			err = r.OnRead(r.slot)
		}
		s.remember(r, err == nil)
		if e := s.engine.Free(r.slot); err == nil {
			err = e
		}
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

// interrupt stops the step under way where all that are in it were cancelled.
func (s *Scheduler) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.ctx.Err() == nil {
			return
		}
	}
	if len(s.parts) > 0 {
		s.abort()
	}
}
