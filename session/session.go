// Package session runs the sequences of many requests on one engine: it schedules them into steps,
// keeps a prefix cache, divides the device's memory, and admits requests to the KV pages.
//
// A [Session] belongs to an opened model: package krait makes it.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/krait-ml/krait/session/schedule"
)

// Options set the limits of a session: see the fields of the same names in krait.Options.
type Options struct {
	Slots            int // 0: 8
	MaxTokensPerStep int // 0: 512, plus one per slot
	PromptShare      float64
	Context          int
	PageTokens       int
	Memory           int64
	Trials           int // sequences that can verify drafts in a step; 0: no speculation
	// Prefill runs prompts where decode has another strategy; nil: one strategy serves both.
	Prefill *exec.Prefill
	// Head has the schedules of an MTP head, of as many ranks as the model or of one, whose memory
	// the plan counts; nil: there is none.
	Head []*lowering.Schedule

	PrefixCache     int64
	PrefixPolicy    string
	PrefixCacheHost int64
	PrefixCacheDir  string
	PrefixGrain     int
	StateCodec      string

	// OwnProcesses is set if each rank runs in a process of its own.
	OwnProcesses bool
}

// Model describes the model of a session.
type Model struct {
	Name        string
	Vocab       int
	Graph       *graph.Graph           // compiled
	Strategy    string                 // of its layout, for messages
	States      string                 // formats of its states, for messages
	Fingerprint func() (string, error) // of its graph and weights
}

// Session runs sequences. Its methods may be called from several goroutines.
type Session struct {
	model     Model
	engine    *exec.Engine
	plan      MemoryPlan
	scheduler *schedule.Scheduler
	cache     *cache.Cache  // nil: no prefix cache
	texts     *draft.Pool   // of ended sequences
	codecs    *state.Codecs // nil: states leave the ranks as they are
	origin    func() (statefile.Origin, error)
	warnings  []string

	closing sync.Once
	closed  atomic.Bool
	mu      sync.Mutex   // guards a step and its results
	results exec.Results // reused, so that a step allocates nothing
}

// PrefillChunk is how many tokens of a prompt a step prefills at most by default: weights are read
// rarely, and activations stay small.
const PrefillChunk = 512

// New makes a session of an engine, whose pages it limits to the plan.
func New(m Model, e *exec.Engine, plan MemoryPlan, o Options) (*Session, error) {
	s := &Session{model: m, engine: e, plan: plan, texts: draft.NewPool(draftedBytes)}
	s.origin = sync.OnceValues(func() (o statefile.Origin, err error) {
		err = s.Use(func() error { // Close would unmap the weights
			o, err = newOrigin(m, e.Schedules())
			return err
		})
		return o, err
	})
	e.LimitPages(plan.pages)
	var err error
	if s.codecs, err = e.Codecs(o.StateCodec); err != nil {
		return nil, err
	}
	if err := o.checkPrefixCache(); err != nil {
		return nil, err
	}
	var prefixes schedule.Cache
	if o.PrefixCache != 0 {
		if err := s.newCache(o); err != nil {
			return nil, fmt.Errorf("PrefixCache: %w", err)
		}
		prefixes = s.cache
	}
	o.Slots, o.Context = e.Slots(), e.Context()
	l := Limits(e.Schedules(), o, plan, m.Vocab)
	if s.scheduler, err = schedule.New(stepper{s}, l, prefixes); err != nil {
		return nil, fmt.Errorf("MaxTokensPerStep: %w", err)
	}
	return s, nil
}

// Engine returns the engine, which runs whole batches. Results of a step are valid until the next.
func (s *Session) Engine() *exec.Engine { return s.engine }

// Scheduler returns the scheduler of the session's requests.
func (s *Session) Scheduler() *schedule.Scheduler { return s.scheduler }

// MemoryPlan returns the division of the device's memory.
func (s *Session) MemoryPlan() MemoryPlan { return s.plan }

// draftedBytes bounds the texts of ended sequences that drafts come from.
const draftedBytes = 32 << 20

// NGrams returns a drafter for a sequence of a salt: it drafts from the sequence, and from ended
// ones of that salt.
func (s *Session) NGrams(salt string) draft.Drafter { return draft.NGram(s.texts, salt) }

// Codecs returns the codecs of states outside of the ranks; nil: none.
func (s *Session) Codecs() *state.Codecs { return s.codecs }

// Warnings lists options without effect, and files of the prefix cache that cannot be used.
func (s *Session) Warnings() []string { return s.warnings }

// Admission makes the queue that admits requests to the session, within the slots and the KV pages
// of its memory plan.
func (s *Session) Admission(l admit.Limits) (*admit.Queue, error) {
	q, err := admit.New(l, s.engine.Slots(), s.plan.Room, s.plan.PageTokens)
	if err != nil {
		err = fmt.Errorf("%w; the memory plan is %s", err, s.plan)
	}
	return q, err
}

// Longest returns the largest number of tokens that a sequence can be fed; 0: any number.
func (s *Session) Longest() int {
	n := s.engine.Context()
	if s.plan.Room > 0 && (n == 0 || s.plan.Room < n) {
		n = s.plan.Room
	}
	return n
}

// Close waits for the running step and closes the engine. Active and queued requests, and later
// ones, get [exec.ErrClosed]. A second Close does nothing.
func (s *Session) Close() (err error) {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.scheduler.Close()
		if s.cache != nil {
			err = s.cache.Close()
		}
		s.mu.Lock() // a caller may be reading logits
		defer s.mu.Unlock()
		s.engine.Close()
	})
	return err
}

// Use calls f while no step runs; after Close it returns [exec.ErrClosed].
func (s *Session) Use(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return exec.ErrClosed
	}
	return f()
}

// Step runs a batch, and calls read with its results before another step can replace them, also if
// some tokens could not be chosen.
func (s *Session) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	return s.Use(func() (err error) {
		s.results, err = s.engine.Step(ctx, b)
		for errors.Is(err, state.ErrNoPages) && s.evictFor(b) { // the step changed nothing
			s.results, err = s.engine.Step(ctx, b)
		}
		if err != nil && exec.AsChoiceError(err) == nil {
			return err
		}
		return cmp.Or(err, read(&s.results))
	})
}

// CheckTokens returns an error if a sequence cannot be fed the tokens.
func (s *Session) CheckTokens(tokens []int) error {
	if len(tokens) == 0 {
		return fmt.Errorf("no tokens: an empty prompt has no next token")
	}
	for i, id := range tokens {
		if id < 0 || id >= s.model.Vocab {
			return fmt.Errorf("token %d is %d; ids of %s go from 0 to %d", i, id, s.model.Name, s.model.Vocab-1)
		}
	}
	return nil
}

// snapshotsPerSlot bounds the snapshots of paused requests.
const snapshotsPerSlot = 2

// quantum is how many tokens a request runs for before it can be paused. Copying a state takes
// about a hundredth of a step, so that few are enough.
const quantum = 4

// scoredBytes bounds the logits of prompts' tokens that a step computes, unless a chunk of the
// smallest size has more.
const scoredBytes = 64 << 20

// stepLimits returns the size of steps. Where a cut of a prompt changes bits all chunks have one
// length, so that it is cut at the same tokens in any company: with rounded states, and where ranks
// have parts of the chunk, which are whole blocks.
func stepLimits(o *Options, schedules []*lowering.Schedule, vocab int) schedule.Limits {
	slots, parts := slotsOf(o), partsOf(o, schedules)
	l := schedule.Limits{Slots: slots, Grain: graph.PartBlock}
	l.Tokens = cmp.Or(o.MaxTokensPerStep, PrefillChunk*parts+slots-1)
	switch {
	case parts > 1:
		if n := l.Longest() / graph.PartBlock; n > 0 {
			l.Grain *= n - n%min(n, parts)
		}
	case slices.ContainsFunc(schedules, (*lowering.Schedule).Rounded):
		l.Grain = max(graph.PartBlock, l.Longest())
	}
	n := scoredBytes / 4 / max(vocab, 1)
	l.Rows = max(l.Grain, min(n-n%l.Grain, l.Longest()))
	return l
}

// Limits returns the limits of the scheduler of a session with a memory plan.
func Limits(schedules []*lowering.Schedule, o Options, plan MemoryPlan, vocab int) schedule.Limits {
	l := stepLimits(&o, schedules, vocab)
	l.Context, l.PromptShare = o.Context, o.PromptShare
	l.Quantum, l.Snapshots = quantum, snapshotsPerSlot*l.Slots
	l.Room, l.Page, l.Trials = plan.Room, plan.PageTokens, o.Trials
	return l
}

// partsOf is the number of ranks that share the tokens of a prompt in parts; otherwise 1.
func partsOf(o *Options, schedules []*lowering.Schedule) int {
	if o.Prefill != nil {
		schedules = o.Prefill.Schedules
	}
	if schedules[0].RowPlace() == graph.InParts {
		return schedules[0].RowRanks()
	}
	return 1
}

// newCache makes the prefix cache.
func (s *Session) newCache(o Options) (err error) {
	begin := time.Now()
	var origin statefile.Origin
	if o.PrefixCacheDir != "" {
		if origin, err = s.origin(); err != nil {
			return err
		}
	}
	p := s.model.Graph.Prefill()
	model := prefix.Model{FLOPsPerToken: p.PerToken, FLOPsPerTokenSquared: p.PerTokenSquared,
		CacheBytes: s.engine.KVBytes(), StateBytes: s.engine.StateBytes(), Grain: cmp.Or(o.PrefixGrain, prefix.Grain)}
	if partsOf(&o, s.engine.Schedules()) > 1 { // a prompt is cut at snapshots, too
		n := stepLimits(&o, s.engine.Schedules(), s.model.Vocab).Grain
		model.Grain = (model.Grain + n - 1) / n * n
	}
	onHost, engine := model, cache.Engine(s.engine)
	if c := s.codecs; c != nil {
		onHost.CacheBytes, onHost.StateBytes = c.KVBytes(), c.StateBytes()
		engine = encoder{s.engine, c}
	}
	s.cache, err = cache.New(engine, cache.Options{
		Model:     model,
		HostModel: onHost,
		Codecs:    s.codecs.String(),
		Capacity:  o.PrefixCache,
		Policy:    o.PrefixPolicy,
		Host:      o.PrefixCacheHost,
		Folder:    o.PrefixCacheDir,
		Origin:    origin,
		Now:       func() float64 { return time.Since(begin).Seconds() },
		Enough:    s.hasPages,
	})
	if err != nil {
		return err
	}
	what, least := "the KV cache of a token", model.CacheBytes
	if model.StateBytes > 0 {
		what, least = "a state", model.StateBytes
	}
	if o.PrefixCache < least {
		s.warnings = append(s.warnings, fmt.Sprintf("a prefix cache of %d bytes holds nothing: %s of this model has %d", o.PrefixCache, what, least))
	}
	s.warnings = append(s.warnings, s.cache.Warnings()...)
	return nil
}

// checkPrefixCache returns an error if options are about a prefix cache that is not there.
func (o *Options) checkPrefixCache() error {
	name := ""
	switch {
	case o.PrefixCache != 0:
	case o.PrefixPolicy != "":
		name = "PrefixPolicy"
	case o.PrefixCacheHost != 0:
		name = "PrefixCacheHost"
	case o.PrefixCacheDir != "":
		name = "PrefixCacheDir"
	}
	if name == "" {
		return nil
	}
	return fmt.Errorf("%s is set without PrefixCache: set its size in bytes", name)
}

// PrefixCache counts the hits and contents of the prefix cache; without one all is 0.
func (s *Session) PrefixCache() cache.Stats {
	if s.cache == nil {
		return cache.Stats{}
	}
	return s.cache.Stats()
}

// PrefixCacheBytes returns the prefix cache's size on the device; 0: there is none.
func (s *Session) PrefixCacheBytes() int64 {
	if s.cache == nil {
		return 0
	}
	return s.cache.Capacity()
}

// PrefixCacheNodes lists the tree of the prefix cache on the device.
func (s *Session) PrefixCacheNodes() []cache.Node {
	if s.cache == nil {
		return nil
	}
	return s.cache.Nodes()
}

// CachedKV returns the KV pages that the prefix cache has for a salt of the longest prefix of a
// prompt without its last token. The caller frees them.
func (s *Session) CachedKV(salt string, prompt []int) []*state.DeviceKV {
	if s.cache == nil {
		return nil
	}
	return s.cache.Rows(salt, prompt)
}

// encoder is an engine whose states are encoded in host memory.
type encoder struct {
	*exec.Engine
	codecs *state.Codecs
}

func (e encoder) OffloadState(s *state.DeviceState) (*state.HostState, error) {
	h, err := e.Engine.OffloadState(s)
	if err != nil {
		return nil, err
	}
	return e.codecs.EncodeState(h)
}

func (e encoder) OffloadKV(r *state.DeviceKV) (*state.HostKV, error) {
	h, err := e.Engine.OffloadKV(r)
	if err != nil {
		return nil, err
	}
	return e.codecs.EncodeKV(h)
}

func (e encoder) LoadState(h *state.HostState) (*state.DeviceState, error) {
	h, err := e.codecs.DecodeState(h)
	if err != nil {
		return nil, err
	}
	return e.Engine.LoadState(h)
}

func (e encoder) LoadKV(h *state.HostKV) (*state.DeviceKV, error) {
	h, err := e.codecs.DecodeKV(h)
	if err != nil {
		return nil, err
	}
	return e.Engine.LoadKV(h)
}

// stepper is the session as its scheduler uses it.
type stepper struct{ *Session }

func (s stepper) Alloc() (int, error) { return s.engine.Alloc() }
func (s stepper) Free(slot int) error { return s.engine.Free(slot) }
func (s stepper) Settle(ctx context.Context, kept []exec.Kept) error {
	err := s.Use(func() error { return s.engine.Settle(ctx, kept) })
	if s.cache != nil && err == nil {
		s.cache.Settled(kept)
	}
	return err
}

func (s stepper) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	begin := time.Now()
	err := s.Session.Step(ctx, b, read)
	if s.cache != nil && (err == nil || exec.AsChoiceError(err) != nil) {
		s.cache.Ran(b, time.Since(begin).Seconds())
	}
	return err
}

// Turns is that of the engine.
func (s stepper) Turns(sequences int) int { return s.engine.Turns(sequences) }

// StepInTurns runs batches in turns, as Step does one.
func (s stepper) StepInTurns(ctx context.Context, list []*exec.Batch, next func(i int, r *exec.Results, err error) bool) error {
	begin := time.Now()
	return s.Use(func() error {
		return s.engine.StepInTurns(ctx, list, func(i int, r *exec.Results, err error) bool {
			if s.cache != nil {
				now := time.Now()
				s.cache.Ran(list[i], now.Sub(begin).Seconds())
				begin = now
			}
			return next(i, r, err)
		})
	})
}

// Save copies recurrent states to the host, unencoded. KV pages stay on the device.
func (s stepper) Save(slot int) (schedule.Saved, error) {
	states, err := s.engine.CopyState(slot)
	if err != nil {
		return nil, err
	}
	defer states.Free()
	host, err := s.engine.OffloadState(states)
	if err != nil {
		return nil, err
	}
	rows, err := s.engine.ShareKV(slot, 0, states.Tokens)
	if err != nil {
		return nil, err
	}
	return &pausedState{s.engine, host, rows}, nil
}

// pausedState is the state of a request without a slot.
type pausedState struct {
	engine *exec.Engine
	states *state.HostState
	rows   *state.DeviceKV
}

func (p *pausedState) Restore(slot int) error {
	states, err := p.engine.LoadState(p.states)
	if err != nil {
		return err
	}
	defer states.Free()
	return p.engine.Resume(slot, states, p.rows)
}

func (p *pausedState) Free() { p.rows.Free() }
