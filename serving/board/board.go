package board

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec"
)

const (
	watch    = 3 * time.Second        // how long after a look steps are kept
	fresh    = 200 * time.Millisecond // how long a State is given to whoever asks
	freshest = 2 * time.Second        // and the tree in it
	keptOf   = 512                    // steps that are kept
	shown    = 160                    // of them, the last
)

// Options say what a board is told of. The zero value is fine.
type Options struct {
	// Work says what kind of work an operation is: multiply, mix or other; nil: all is other.
	Work func(op string) string
	// Now is the time; nil: [time.Now].
	Now func() time.Time
}

// Board keeps what was done while somebody looks. Its methods may be called from several
// goroutines.
type Board struct {
	o      Options
	made   time.Time
	until  atomic.Int64 // nanoseconds after made for which somebody is taken to look
	mu     sync.Mutex   // of all below
	steps  [keptOf]Step
	count  int64 // steps, while somebody looked
	totals Totals
	lanes  lanes
	under  *Step         // that runs
	begun  time.Duration // it
	memory memory
}

// New makes a board.
func New(o Options) *Board {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := &Board{o: o, made: o.Now()}
	b.lanes.work = o.Work
	return b
}

// Step is a step of the engine.
type Step struct {
	Took    time.Duration
	Prompts int // sequences whose prompts it read
	Prefill int // tokens of these
	Decode  int // rows: sequences that got a token, and were fed one
}

// Watched reports whether somebody has looked lately: it is [krait.Options.Recording].
func (b *Board) Watched() bool { return int64(b.since()) < b.until.Load() }

func (b *Board) since() time.Duration { return b.o.Now().Sub(b.made) }

// step keeps a step that has ended.
func (b *Board) step(s Step) {
	b.steps[b.count%keptOf] = s
	b.count++
	b.totals.Steps++
	b.totals.Prefill += int64(s.Prefill)
	b.totals.Decode += int64(s.Decode)
	b.totals.Busy += s.Took.Seconds()
}

// Batch is told of a batch before it runs: it is [krait.Options.Batches]. It counts as
// [exec.Work.Mix] does.
func (b *Board) Batch(w *exec.Work) {
	if !b.Watched() {
		return
	}
	now := b.since()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under != nil { // nobody says when it ended
		b.step(*b.under)
	}
	s := &Step{}
	s.Prompts, s.Prefill, s.Decode = w.Mix()
	b.under, b.begun = s, now
}

// Record is told what ranks did in the step that has ended: it is [krait.Options.Record].
func (b *Board) Record(events []exec.Event) {
	if !b.Watched() {
		return
	}
	now := b.since()
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.under; s != nil {
		s.Took, b.under = now-b.begun, nil
		b.step(*s)
	}
	b.lanes.record(events, now.Seconds())
}

// memory is what was made for whoever looked last, so that many who look cost what one does.
type memory struct {
	mu   sync.Mutex
	at   time.Duration
	text []byte
	tree struct {
		at   time.Duration
		made bool
		Cache
	}
}

// JSON is a [State] for somebody who looks. What the board is not told of comes from fill;
// cache is asked for the prefix cache, less often, and may be nil. However many look, both
// are asked five times in a second at most.
func (b *Board) JSON(fill func(*State), cache func() Cache) []byte {
	m := &b.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := b.since()
	if !b.Watched() { // nobody said how the step ended that ran when the last look had lasted
		b.mu.Lock()
		b.under = nil
		b.mu.Unlock()
	}
	b.until.Store(int64(now + watch))
	if m.text != nil && now-m.at < fresh {
		return m.text
	}
	s := &State{Requests: []Request{}, Steps: [][5]int64{}}
	fill(s)
	if cache != nil {
		if !m.tree.made || now-m.tree.at >= freshest {
			m.tree.Cache, m.tree.at, m.tree.made = cache(), now, true
			m.tree.bound()
		}
		s.Cache = &m.tree.Cache
	}
	b.add(s, now)
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	m.at, m.text = now, append(text, '\n')
	return m.text
}

// add says what the board was told of.
func (b *Board) add(s *State, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Now = now.Seconds()
	s.Totals = b.totals
	for i := max(0, b.count-shown); i < b.count; i++ {
		x := b.steps[i%keptOf]
		s.Steps = append(s.Steps, [5]int64{i, x.Took.Microseconds(), int64(x.Prompts), int64(x.Prefill), int64(x.Decode)})
	}
	s.Lanes = b.lanes.show(now.Seconds())
}
