package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

const (
	fakeVocab = 1000
	unlucky   = fakeVocab + 1 // a token after which none can be chosen
)

// fake is an engine whose tokens depend on all that a sequence was fed, on how its prompt
// was cut, and on the random number of the choice; and which fails a test that does
// with it what must not be done.
type fake struct {
	t     testing.TB
	l     Limits
	full  bool // there is no memory to save a state
	every bool // each cut shows, otherwise those that are at no multiple of the grain

	mu               sync.Mutex
	slots            []*fakeSequence // nil: free
	steps            int
	largest          int // batch, in sequences
	saved, mostSaved int // states, now and at most
	settles          int
	tried, kept      int64                                     // drafts
	unsettled        error                                     // of each fifth Settle
	before           func(ctx context.Context, step int) error // its error fails the step; may be nil

	turns   int  // batches that run in turns; 0: none do
	turning bool // they run, and nothing else may use the engine
	inTurns int  // steps in turns
	most    int  // of them without a break
}

type fakeSequence struct {
	fed    int
	hash   uint64
	broken bool
	trial  []fakeSequence // after each token on trial
}

func newFake(t testing.TB, l Limits) *fake {
	return &fake{t: t, l: l, slots: make([]*fakeSequence, l.Slots)}
}

// Turns is how many batches run in turns.
func (f *fake) Turns(sequences int) int { return min(max(1, f.turns), sequences) }

// StepInTurns runs batches in turns, as an engine does, one after another.
func (f *fake) StepInTurns(ctx context.Context, list []*exec.Batch, next func(i int, r *exec.Results, err error) bool) error {
	f.turning = true
	defer func() { f.turning = false }()
	begun := f.inTurns
	defer func() { f.most = max(f.most, f.inTurns-begun) }()
	var running []int
	for i := range list {
		running = append(running, i)
	}
	for len(running) > 0 {
		i := running[0]
		running = running[1:]
		var out exec.Results
		err := f.Step(ctx, list[i], func(r *exec.Results) error { out = *r; return nil })
		if lost(err) {
			for _, k := range running {
				f.breakAll(list[k])
			}
			return err
		}
		if f.inTurns++; next(i, &out, err) {
			running = append(running, i)
		}
	}
	return nil
}

// idle checks that no batches run in turns.
func (f *fake) idle() {
	if f.turning {
		f.t.Error("the engine is used while batches run in turns")
	}
}

func (f *fake) Alloc() (int, error) {
	f.idle()
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.slots, nil)
	if i < 0 {
		return 0, errors.New("all slots are taken")
	}
	f.slots[i] = &fakeSequence{}
	return i, nil
}

func (f *fake) Free(slot int) error {
	f.idle()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots[slot] == nil {
		f.t.Errorf("slot %d is freed twice", slot)
	}
	f.slots[slot] = nil
	return nil
}

// Save copies the state of a slot.
func (f *fake) Save(slot int) (Saved, error) {
	f.idle()
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.slots[slot]; s == nil || s.broken || s.trial != nil {
		f.t.Errorf("slot %d is saved, and has %+v", slot, f.slots[slot])
	}
	if f.full {
		return nil, errors.New("there is no memory")
	}
	f.saved++
	f.mostSaved = max(f.mostSaved, f.saved)
	return &fakeSaved{f, *f.slots[slot], false}, nil
}

type fakeSaved struct {
	f     *fake
	state fakeSequence
	freed bool
}

func (s *fakeSaved) Restore(slot int) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.freed || s.f.slots[slot].fed > 0 {
		s.f.t.Errorf("slot %d with %+v goes on from %+v", slot, s.f.slots[slot], s)
	}
	*s.f.slots[slot] = s.state
	return nil
}

func (s *fakeSaved) Free() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.freed {
		s.f.t.Error("a state is freed twice")
	}
	s.freed = true
	s.f.saved--
}

// taken is how many slots are.
func (f *fake) taken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.slots {
		if s != nil {
			n++
		}
	}
	return n
}

func (f *fake) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	f.mu.Lock()
	before, step := f.before, f.steps
	f.steps++
	f.largest = max(f.largest, len(b.Sequences))
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, step); err != nil {
			f.breakAll(b)
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.check(b); f.t.Failed() {
		return errors.New("the batch is wrong")
	}
	var r exec.Results
	var bad exec.ChoiceError
	for _, q := range b.Sequences {
		s := f.slots[q.Slot]
		rows := q.Rows
		if rows == nil {
			rows = []int{len(q.Tokens) - 1}
		}
		if q.Trial {
			bad.Rows = append(bad.Rows, f.try(s, &q, b.Choices[len(r.Tokens):], &r)...)
			continue
		}
		from := 0
		for _, at := range rows {
			if from == 0 {
				s.cut(f.l.Grain, f.every)
			}
			if from <= at {
				s.mixAll(q.Tokens[from : at+1])
			}
			from = at + 1
			row := len(r.Tokens)
			r.Tokens = append(r.Tokens, s.choose(b.Choices[row].Uniform))
			if r.Tokens[row] < 0 {
				s.broken, bad.Rows = true, append(bad.Rows, row)
			} else if pick := b.Choices[row].Pick; pick != nil {
				r.Tokens[row] = pick([]float32{float32(s.hash % 1000)}, r.Tokens[row])
			}
		}
		if len(rows) == 0 {
			s.feed(q.Tokens, f.l.Grain, f.every)
		}
	}
	err := read(&r)
	if bad.Rows != nil {
		bad.Err = errors.New("some rows are bad")
		err = &bad
	}
	return err
}

// try feeds the tokens of a trial one by one, as single steps would. The host picks in any order.
// It returns the rows without a token.
func (f *fake) try(s *fakeSequence, q *exec.Sequence, choices []exec.Choice, r *exec.Results) (bad []int) {
	from, now := len(r.Tokens), *s
	for i := range q.Tokens {
		now.feed(q.Tokens[i:i+1], f.l.Grain, f.every)
		s.trial = append(s.trial, now)
		if r.Tokens = append(r.Tokens, now.choose(choices[i].Uniform)); r.Tokens[from+i] < 0 {
			bad = append(bad, from+i)
		}
	}
	var all sync.WaitGroup
	for i, c := range choices[:len(q.Tokens)] {
		if c.Pick != nil && r.Tokens[from+i] >= 0 {
			all.Go(func() { r.Tokens[from+i] = c.Pick([]float32{float32(s.trial[i].hash % 1000)}, r.Tokens[from+i]) })
		}
	}
	all.Wait()
	f.tried += int64(len(q.Tokens) - 1)
	return bad
}

// Settle keeps the first tokens of trials.
func (f *fake) Settle(ctx context.Context, kept []exec.Kept) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settles++; f.unsettled != nil && f.settles%5 == 0 {
		return f.unsettled
	}
	for _, k := range kept {
		s := f.slots[k.Slot]
		if s == nil || k.Tokens < 1 || k.Tokens > len(s.trial) {
			f.t.Errorf("%+v of a state %+v", k, s)
			return errors.New("the trial is wrong")
		}
		f.kept += int64(k.Tokens - 1)
		*s = s.trial[k.Tokens-1]
	}
	return nil
}

func (f *fake) breakAll(b *exec.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range b.Sequences {
		f.slots[q.Slot].broken = true
	}
}

// check holds a batch against the limits.
func (f *fake) check(b *exec.Batch) {
	tokens, rows, more, trials, room := 0, 0, 0, 0, 0
	for i, s := range f.slots {
		if s != nil {
			at := slices.IndexFunc(b.Sequences, func(q exec.Sequence) bool { return q.Slot == i })
			if room += f.l.pages(s.fed); at >= 0 {
				room += f.l.pages(s.fed+len(b.Sequences[at].Tokens)) - f.l.pages(s.fed)
			}
		}
	}
	if f.l.Room > 0 && room > f.l.Room {
		f.t.Errorf("room for %d tokens of %d", room, f.l.Room)
	}
	for i, q := range b.Sequences {
		tokens += len(q.Tokens)
		if q.Rows == nil {
			rows++
		}
		rows, more = rows+len(q.Rows), more+len(q.Rows)
		s := f.slots[q.Slot]
		if q.Trial {
			trials++
			more -= len(q.Rows) // bounded with the others
			if len(q.Rows) != len(q.Tokens) || len(q.Tokens) > exec.MaxTrial {
				f.t.Errorf("sequence %d: the trial %+v with a state of %+v", i, q, s)
			}
		}
		if s == nil || s.broken || s.trial != nil || len(q.Tokens) == 0 || f.l.Context > 0 && s.fed+len(q.Tokens) > f.l.Context {
			f.t.Errorf("sequence %d: %+v with a state of %+v", i, q, s)
		}
		for _, other := range b.Sequences[:i] {
			if other.Slot == q.Slot {
				f.t.Errorf("slot %d is there twice", q.Slot)
			}
		}
	}
	if tokens > f.l.Tokens || trials > f.l.Trials || more > f.l.Rows || rows > f.l.Slots-1+f.l.Rows || len(b.Sequences) == 0 || rows != len(b.Choices) || (rows == 0) != (b.Outputs != nil) {
		f.t.Errorf("a step of %d tokens of %d, %d rows, %d choices, wants %v", tokens, f.l.Tokens, rows, len(b.Choices), b.Outputs)
	}
}

// feed takes what a step has of a sequence.
func (s *fakeSequence) feed(tokens []int, grain int, every bool) {
	s.cut(grain, every)
	s.mixAll(tokens)
}

// cut is what the beginning of a part of a step shows in the state.
func (s *fakeSequence) cut(grain int, every bool) {
	if s.fed > 0 && (every || s.fed%grain != 0) {
		s.mix(uint64(fakeVocab + 7))
	}
}

func (s *fakeSequence) mixAll(tokens []int) {
	for _, id := range tokens {
		s.mix(uint64(id))
	}
	if tokens[len(tokens)-1] == unlucky {
		s.hash = unlucky
	}
	s.fed += len(tokens)
}

func (s *fakeSequence) mix(x uint64) {
	s.hash = (s.hash ^ x) * 0x9e3779b97f4a7c15
	s.hash ^= s.hash >> 29
}

func (s *fakeSequence) choose(uniform float64) int32 {
	if s.hash == unlucky {
		return graph.BrokenLogits
	}
	c := *s
	c.mix(uint64(uniform * 1e9))
	return int32(c.hash % fakeVocab)
}

// asked is a request, and what it is to give.
type asked struct {
	prompt []int
	tenant string
	most   int
	last   int // a token that is the last; -1: none
	seed   uint64
	forced []int
	host   bool // tokens are picked on the host, and depend on those before
	drafts int  // how an oracle drafts, which knows limits and every
	limits *Limits
	every  bool
	scores []float32 // what Score is to be given of each token of the prompt but the last; nil: it is not wanted
}

// draws returns the random numbers of a seed by their index.
func draws(seed uint64) func(i int) float64 {
	var list []float64
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(i int) float64 {
		for len(list) <= i {
			list = append(list, rng.Float64())
		}
		return list[i]
	}
}

// request is asked with a generator of its own.
func (a asked) request() Request {
	var out []int
	draw := draws(a.seed)
	q := Request{
		Prompt: a.prompt, Tenant: a.tenant, MaxTokens: a.most, Forced: a.forced,
		Choose: func(drafts []int) exec.Choice {
			return exec.Choice{Choice: kernels.Choice{Uniform: draw(len(out) + len(drafts))}}
		},
		Accept: func(id int) bool { out = append(out, id); return id == a.last },
	}
	if a.host {
		choose := q.Choose
		q.Choose = func(drafts []int) exec.Choice {
			c := choose(drafts)
			c.Pick = func(logits []float32, _ int32) int32 { return picked(logits[0], draw(len(out)), out) }
			return c
		}
	}
	if a.drafts != noDrafts {
		q.Draft, q.Eager = newOracle(a), true
	}
	if a.scores != nil {
		q.Score = func(at int) exec.Choice {
			return exec.Choice{Pick: func(logits []float32, chosen int32) int32 {
				a.scores[at] += logits[0] // once, or it is wrong
				return chosen
			}}
		}
	}
	return q
}

// picked is what the host picks after the tokens of out: as with penalties, all of them count.
func picked(logit float32, uniform float64, out []int) int32 {
	x := uint64(logit) + uint64(uniform*1e9)
	for _, id := range out {
		x = (x ^ uint64(id)) * 0x9e3779b97f4a7c15
		x ^= x >> 29
	}
	return int32(x % fakeVocab)
}

// scored is what Score is given without other requests.
func (a asked) scored(l Limits, every bool) []float32 {
	out := make([]float32, len(a.prompt)-1)
	s := &fakeSequence{}
	for i := range out {
		if i%l.Longest() == 0 {
			s.cut(l.Grain, every)
		}
		s.mixAll(a.prompt[i : i+1])
		out[i] = float32(s.hash % 1000)
	}
	return out
}

// alone is the text without other requests.
func (a asked) alone(l Limits, every bool) []int {
	s, rng := &fakeSequence{}, rand.New(rand.NewPCG(a.seed, 0))
	for rest := a.prompt; len(rest) > 0; {
		n := min(len(rest), l.Longest())
		s.feed(rest[:n], l.Grain, every)
		rest = rest[n:]
	}
	var out []int
	for {
		uniform := rng.Float64()
		id := int(s.choose(uniform))
		if id < 0 {
			return out
		}
		if a.host {
			id = int(picked(float32(s.hash%1000), uniform, out))
		}
		if len(out) < len(a.forced) {
			id = a.forced[len(out)]
		}
		out = append(out, id)
		if id == a.last || len(out) == a.most || l.Context > 0 && len(a.prompt)+len(out) > l.Context {
			return out
		}
		s.feed([]int{id}, l.Grain, every)
	}
}

// drawAsked is a request at random.
func drawAsked(r *rand.Rand, longest, most int) asked {
	a := asked{prompt: make([]int, 1+r.IntN(longest)), most: 1 + r.IntN(most), last: -1, seed: r.Uint64(), host: r.IntN(3) == 0}
	for i := range a.prompt {
		a.prompt[i] = r.IntN(fakeVocab)
	}
	if r.IntN(3) == 0 {
		a.scores = make([]float32, len(a.prompt)-1)
	}
	if r.IntN(4) == 0 {
		for range r.IntN(most + 2) {
			a.forced = append(a.forced, r.IntN(fakeVocab))
		}
	}
	return a
}

// collect reads a request to its end.
func collect(s *Scheduler, ctx context.Context, q Request) (ids []int, err error) {
	for token, e := range s.Stream(ctx, q) {
		if e != nil {
			if err != nil {
				return ids, fmt.Errorf("a second error: %w", e)
			}
			err = e
			continue
		}
		ids = append(ids, token.ID)
	}
	return ids, err
}
