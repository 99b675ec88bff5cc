package board

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/exec"
)

const (
	watch    = 3 * time.Second        // steps are recorded for this time after a request
	fresh    = 200 * time.Millisecond // age up to which a State is served again
	freshest = 2 * time.Second        // age up to which its tree is
	history  = 512                    // recorded steps
	shown    = 160                    // the last of them, in a State
)

// Options configure a board. The zero value has defaults.
type Options struct {
	// Work returns the kind of an operation: multiply, mix or other; nil: all are other.
	Work func(op string) string
	// Now is the clock; nil: [time.Now].
	Now func() time.Time
}

// Board records what the engine does while a page is open. Its methods may be called from several
// goroutines.
type Board struct {
	o      Options
	made   time.Time
	until  atomic.Int64 // recording ends this many nanoseconds after made
	mu     sync.Mutex   // of all below
	steps  [history]Step
	count  int64 // recorded steps
	totals Totals
	lanes  lanes
	active *Step         // the running step
	begun  time.Duration // when it began
	memory memory
	minute minute
}

// minute counts tokens by second.
type minute struct {
	tokens [60][2]int64 // prefill, decode; a second is at its number modulo 60
	last   int64        // the second of the last count
}

// upTo clears the seconds that have passed without a count.
func (m *minute) upTo(second int64) {
	for m.last = max(m.last, second-60); m.last < second; {
		m.last++
		m.tokens[m.last%60] = [2]int64{}
	}
}

// list returns the counts, the oldest first.
func (m *minute) list() (out [60][2]int64) {
	for i := range int64(60) {
		out[i] = m.tokens[(m.last+1+i)%60]
	}
	return out
}

// New returns a board.
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
	Prompts int // sequences in prefill
	Prefill int // tokens of their prompts
	Decode  int // sequences in decode, one token each
}

// Watched reports whether a page requested a state lately: it is [krait.Options.Recording].
func (b *Board) Watched() bool { return int64(b.since()) < b.until.Load() }

func (b *Board) since() time.Duration { return b.o.Now().Sub(b.made) }

// step records a step that has ended.
func (b *Board) step(s Step) {
	b.steps[b.count%history] = s
	b.count++
	b.totals.Steps++
	b.totals.Prefill += int64(s.Prefill)
	b.totals.Decode += int64(s.Decode)
	b.totals.Busy += s.Took.Seconds()
}

// Batch records a batch before it runs: it is [krait.Options.Batches]. It counts as [exec.Work.Mix]
// does.
func (b *Board) Batch(w *exec.Work) {
	now := b.since()
	b.mu.Lock()
	defer b.mu.Unlock()
	var s Step
	s.Prompts, s.Prefill, s.Decode = w.Mix()
	second := int64(now / time.Second)
	b.minute.upTo(second)
	b.minute.tokens[second%60][0] += int64(s.Prefill)
	b.minute.tokens[second%60][1] += int64(s.Decode)
	if !b.Watched() {
		return
	}
	if b.active != nil { // the device does not report when it ended
		b.step(*b.active)
	}
	active := s
	b.active, b.begun = &active, now
}

// Record records the events of a step that has ended: it is [krait.Options.Record].
func (b *Board) Record(events []exec.Event) {
	if !b.Watched() {
		return
	}
	now := b.since()
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.active; s != nil {
		s.Took, b.active = now-b.begun, nil
		b.step(*s)
	}
	b.lanes.record(events, now.Seconds())
}

// memory caches the last State, so that many open pages cost what one does.
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

// JSON returns a [State] as JSON. fill adds what the board does not record; cache, which may be
// nil, returns the prefix cache, and is called less often. Both are called at most five times a
// second, for any number of open pages.
func (b *Board) JSON(fill func(*State), cache func() Cache) []byte {
	m := &b.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := b.since()
	if !b.Watched() { // the end of a step that outlived the recording is unknown
		b.mu.Lock()
		b.active = nil
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

// add adds what the board recorded.
func (b *Board) add(s *State, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Now = now.Seconds()
	s.Totals = b.totals
	b.minute.upTo(int64(now / time.Second))
	s.Minute = b.minute.list()
	for i := max(0, b.count-shown); i < b.count; i++ {
		x := b.steps[i%history]
		s.Steps = append(s.Steps, [5]int64{i, x.Took.Microseconds(), int64(x.Prompts), int64(x.Prefill), int64(x.Decode)})
	}
	s.Lanes = b.lanes.show(now.Seconds())
}
