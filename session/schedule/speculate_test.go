package schedule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/prop"
)

// Ways in which an oracle drafts.
const (
	noDrafts = iota
	wrongDrafts
	rightDrafts
	rightButLast
	mixedDrafts
	longDrafts    // right, and more than asked for
	unluckyDrafts // right, then a token after which none can be chosen
	waysToDraft
)

// oracle is a drafter that knows the text.
type oracle struct {
	text   []int // with its prompt
	way    int
	read   int
	rng    *rand.Rand
	closed bool
}

// newOracle knows a text that was cut into chunks of the grain.
func newOracle(a asked) *oracle {
	return &oracle{text: slices.Concat(a.prompt, a.alone(*a.limits, a.every)), way: a.drafts, rng: rand.New(rand.NewPCG(a.seed, 5))}
}

func (o *oracle) Kind() string        { return "oracle" }
func (o *oracle) Read(tokens ...int)  { o.read += len(tokens) }
func (o *oracle) Grade() int          { return o.rng.IntN(5) - 1 }
func (o *oracle) wrong(token int) int { return (token + 1 + o.rng.IntN(fakeVocab-1)) % fakeVocab }
func (o *oracle) Close()              { o.closed = true }
func (o *oracle) Draft(dst []int, n int) []int {
	if o.way == longDrafts {
		n += 5
	}
	for i := range n {
		token := o.rng.IntN(fakeVocab) // beyond the text
		if at := o.read + i; at < len(o.text) {
			token = o.text[at]
		}
		switch {
		case o.way == wrongDrafts, o.way == rightButLast && i == n-1, o.way == mixedDrafts && o.rng.IntN(4) == 0:
			token = o.wrong(token)
		case o.way == unluckyDrafts && o.rng.IntN(3) == 0:
			token = unlucky
		}
		dst = append(dst, token)
	}
	return dst
}

// TestMarksOfTrials: the cache gets the snapshots and the tokens that it gets without drafts.
func TestMarksOfTrials(t *testing.T) {
	r := rand.New(rand.NewPCG(prop.Seed(t), 1))
	trials := int64(0)
	for range 300 {
		l := Limits{Slots: 1, Tokens: 40, Grain: 4, Trials: 1}
		if err := l.check(); err != nil {
			t.Fatal(err)
		}
		a := drawAsked(r, 20, 30)
		a.limits = &l
		a.prompt, a.scores, a.host = append(a.prompt, 1, 2, 3, 4, 5, 6, 7, 8), nil, r.IntN(2) == 0
		whole := a.alone(l, false)
		if r.IntN(2) == 0 {
			a.last = whole[r.IntN(len(whole))]
		}
		final, n := make([]int, len(whole)), 0 // as of a stop string that begins now and then
		for i := range final {
			switch {
			case r.IntN(2) == 0:
				n = i + 1
			case n == i-1 && i > 0 || n == i: // it goes on, or begins
			case r.IntN(3) == 0:
				n = i
			}
			final[i] = n
		}
		run := func(way int) (calls []string, ids []int) {
			m := &marking{fake: newFake(t, l), marks: []int{3, 8}}
			s, err := New(m, l, m)
			if err != nil {
				t.Fatal(err)
			}
			a.drafts = way
			q, n := a.request(), 0
			accept := q.Accept
			q.Accept = func(id int) bool { n++; return accept(id) }
			q.Final = func() int { return final[n-1] }
			if ids, err = collect(s, t.Context(), q); err != nil {
				t.Fatal(err)
			}
			s.Close()
			trials += s.done.Drafts["oracle"].Trials
			return m.calls, ids
		}
		want, text := run(noDrafts)
		for way := range waysToDraft {
			if got, ids := run(way); !slices.Equal(got, want) || !slices.Equal(ids, text) {
				t.Fatalf("drafts %d: %v, %q, want %v, %q; final %v", way, ids, got, text, want, final)
			}
		}
	}
	if trials < 1000 {
		t.Errorf("%d trials", trials)
	}
}

// TestDraftsTold: the reader is told the drafts of each step, before its tokens, and they are
// counted.
func TestDraftsTold(t *testing.T) {
	for way, want := range map[int]string{wrongDrafts: "[15 0 14 0 13 0 12 0 11 0 10 0 9 0 8 0 7 0 6 0]", rightButLast: "[15 14 4 3]", rightDrafts: "[15 15 3 3]"} {
		s, f := newScheduler(t, Limits{Slots: 1, Tokens: 40, Grain: 4, Trials: 1})
		a := of(1, 3, 21)
		if way == wrongDrafts {
			a.most = 17
		}
		a.drafts, a.limits = way, &s.limits
		q := a.request()
		q.Draft.(*oracle).rng = rand.New(zero{}) // each guess is of a grade
		var told []int
		accepted := 0
		q.OnDrafts = func(drafts, right int) { told, accepted = append(told, drafts, right), accepted+right }
		if ids, err := collect(s, t.Context(), q); err != nil || !slices.Equal(ids, a.alone(s.limits, false)) {
			t.Fatalf("%v, %v", ids, err)
		}
		if way == wrongDrafts {
			told = told[:min(20, len(told))]
		}
		if d := s.Load().Drafts["oracle"]; fmt.Sprint(told) != want || d.Accepted != int64(accepted) || d.Tokens != f.tried || !q.Draft.(*oracle).closed {
			t.Errorf("drafts %d: told %v, want %v; counted %+v, the engine %d", way, told, want, d, f.tried)
		}
	}
}

// zero is a source of large numbers.
type zero struct{}

func (zero) Uint64() uint64 { return 1<<63 - 1 }

// TestPace: on an engine with the given time per draft, what is drafted is never much slower than
// nothing, and about as fast as the best number of drafts.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		way         int
		sequences   int
		extra       float64 // time of a draft, of a step without
		least, most float64 // speed, of that without drafts
	}{
		{wrongDrafts, 1, 0.05, 0.98, 1}, {wrongDrafts, 1, 0.5, 0.97, 1}, {wrongDrafts, 8, 0.05, 0.97, 1},
		{rightDrafts, 1, 0.05, 7, 9.2}, {rightDrafts, 1, 0.3, 2, 2.8}, {rightDrafts, 8, 0.05, 1.9, 2.4},
		{mixedDrafts, 1, 0.08, 1.7, 3}, {mixedDrafts, 1, 1, 0.97, 1}, {mixedDrafts, 16, 0.06, 0.98, 1.1},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := newScheduler(t, Limits{Slots: c.sequences, Tokens: 400, Grain: 4, Trials: c.sequences})
				s.engine = &timed{fake: f, extra: c.extra}
				begun := time.Now()
				var all []*reading
				const tokens = 2000
				for i := range c.sequences {
					a := of(10*i, 3, tokens)
					a.drafts, a.limits = c.way, &s.limits
					q := a.request()
					q.Eager = false
					all = append(all, s.begin(t.Context(), q))
				}
				for i, r := range all {
					if <-r.done; r.err != nil || !slices.Equal(r.ids, of(10*i, 3, tokens).alone(s.limits, false)) {
						t.Fatalf("%v", r.err)
					}
				}
				const step = 1050 * time.Microsecond // on average, of timed without drafts
				speed := tokens * step.Seconds() / time.Since(begun).Seconds()
				if speed < c.least || speed > c.most+0.01 {
					t.Errorf("%.3f times as fast, %+v", speed, s.Load().Drafts)
				}
			})
		})
	}
}

// timed takes a millisecond for a step, and a share of it more for each draft; every fortieth step,
// and the first one, take three times as long.
type timed struct {
	*fake
	extra float64
	steps int
}

func (c *timed) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	drafts := 0
	for _, q := range b.Sequences {
		if q.Trial {
			drafts += len(q.Tokens) - 1
		}
	}
	took := time.Duration((1 + c.extra*float64(drafts)) * float64(time.Millisecond))
	if c.steps++; c.steps%40 == 1 {
		took *= 3
	}
	time.Sleep(took)
	return c.fake.Step(ctx, b, read)
}
