package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/prop"
)

// witness is a reader that keeps what it reads.
type witness struct {
	tokens []Token
	fetch  func(Beginning, error)
	ended  bool
	err    error
}

func (w *witness) Token(t Token)                     { w.tokens = append(w.tokens, t) }
func (w *witness) Fetch(done func(Beginning, error)) { w.fetch = done }
func (w *witness) End(err error)                     { w.ended, w.err = true, err }

func (w *witness) ids() (ids []int) {
	for _, t := range w.tokens {
		ids = append(ids, t.ID)
	}
	return ids
}

// TestStepper: requests that arrive at random, some with drafts and some with a fetch that leaves
// the prompt to the scheduler, get their texts alone, at times of ends of steps.
func TestStepper(t *testing.T) {
	r := rand.New(rand.NewPCG(prop.Seed(t), 1))
	fetched := 0
	for range 60 {
		l := Limits{Slots: 1 + r.IntN(5), Grain: 1 + r.IntN(6), Quantum: r.IntN(4), Snapshots: r.IntN(4), PromptShare: []float64{0, 0.3}[r.IntN(2)]}
		l.Trials, l.Tokens = r.IntN(l.Slots+1), l.Slots-1+l.Grain+r.IntN(20)
		if err := l.check(); err != nil {
			t.Fatal(err)
		}
		f := newFake(t, l)
		p, err := NewStepper(f, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(0, 0)
		ends := map[time.Time]bool{}
		var all []asked
		var readers []*witness
		for left := 20; ; now = now.Add(time.Millisecond) {
			for ; left > 0 && r.IntN(3) == 0; left-- {
				a := drawAsked(r, 30, 10)
				a.scores, a.limits = nil, &l
				if l.Trials > 0 {
					a.drafts = r.IntN(waysToDraft - 1) // not unlucky
				}
				q := a.request()
				if r.IntN(3) == 0 {
					q.Fetch = func() (Beginning, error) { panic("of a stepper") }
				}
				w := &witness{}
				if err := p.Enter(now, q, w); err != nil {
					t.Fatal(err)
				}
				all, readers = append(all, a), append(readers, w)
			}
			for _, w := range readers {
				if w.fetch != nil && r.IntN(4) == 0 {
					w.fetch(nil, nil)
					w.fetch = nil
					fetched++
				}
			}
			if p.Begin(now) {
				now = now.Add(time.Duration(1+r.IntN(9)) * time.Millisecond)
				ends[now] = true
				p.End(now)
			} else if left == 0 && !slices.ContainsFunc(readers, func(w *witness) bool { return !w.ended }) {
				break
			}
		}
		for i, a := range all {
			w := readers[i]
			if want := a.alone(l, false); w.err != nil || !slices.Equal(w.ids(), want) {
				t.Fatalf("request %d: %v, %v, want %v", i, w.ids(), w.err, want)
			}
			if slices.ContainsFunc(w.tokens, func(k Token) bool { return !ends[k.At] }) {
				t.Fatalf("request %d has tokens at times of no end of a step: %v", i, w.tokens)
			}
		}
		empty(t, p.s, f)
	}
	if fetched < 100 {
		t.Errorf("%d fetches", fetched)
	}
}
