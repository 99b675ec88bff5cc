package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/prop"
)

func newScheduler(t testing.TB, l Limits) (*Scheduler, *fake) {
	t.Helper()
	if err := l.check(); err != nil {
		t.Fatal(err)
	}
	f := newFake(t, l)
	s, err := New(f, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, f
}

// empty checks that nothing is left.
func empty(t testing.TB, s *Scheduler, f *fake) {
	t.Helper()
	if l := s.Load(); l.Waiting != 0 || l.Running != 0 || f.taken() != 0 {
		t.Errorf("left: %+v, and %d slots are taken", l, f.taken())
	}
}

var errPlanted = errors.New("planted")

// TestRequests lets many requests run at once: some are read slowly, some no further
// than to some token, some cancelled, some end early, some have logits from which
// nothing can be chosen, and now and then a step fails. Each gets what it gets alone,
// all or the beginning, and no slot stays taken.
func TestRequests(t *testing.T) {
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		l := Limits{Slots: 1 + r.IntN(5), Grain: 1 + r.IntN(6), Patience: r.IntN(10)}
		l.Tokens = l.Slots - 1 + l.Grain + r.IntN(20)
		if r.IntN(2) == 0 {
			l.Room = 50 + r.IntN(50)
		}
		if r.IntN(3) == 0 {
			l.Context = 20 + r.IntN(20)
		}
		every := r.IntN(2) == 0
		if every {
			l.Grain = l.Longest()
		} else if r.IntN(2) == 0 {
			l.Rows = l.Grain + r.IntN(5)
		}
		c := company{fails: r.IntN(3) == 0, every: every}
		t.Run(fmt.Sprintf("%+v %+v", l, c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, l, rand.New(rand.NewPCG(seed, r.Uint64()))) })
		})
	}
}

// company is what TestRequests does with limits.
type company struct{ fails, every bool }

func (c company) run(t *testing.T, l Limits, r *rand.Rand) {
	s, f := newScheduler(t, l)
	f.every = c.every
	if c.fails {
		f.before = func(_ context.Context, step int) error {
			if step%7 == 6 {
				return errPlanted
			}
			return nil
		}
	}
	var all sync.WaitGroup
	for range 20 {
		a, how := drawAsked(r, 30, 15), r.IntN(6)
		at := r.IntN(a.most + 1)
		if l.Context > 0 && len(a.prompt) > l.Context {
			continue
		}
		all.Go(func() { c.one(t, s, a, how, at) })
	}
	all.Wait()
	s.live.Wait()
	empty(t, s, f)
	s.Close()
	if _, err := collect(s, t.Context(), drawAsked(r, 5, 5).request()); !errors.Is(err, exec.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// one reads a request in a way, which changes at a token.
func (c company) one(t *testing.T, s *Scheduler, a asked, how, at int) {
	whole := a.alone(s.limits, c.every)
	var wanted error // that may come
	want := len(whole)
	if l := s.limits.Context; l > 0 && len(a.prompt)+len(whole) > l && len(whole) < a.most {
		wanted = s.limits.tooLong(l + 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch how {
	case 0: // cancelled
		want = min(at, want)
		if at == 0 {
			cancel()
		}
	case 1: // read so far
		want = min(max(1, at), want)
	case 2: // the last is met early
		a.last = whole[min(at, want-1)]
		want = slices.Index(whole, a.last) + 1
		wanted = nil
	case 3: // nothing can be chosen
		a.prompt = append(slices.Clone(a.prompt[:len(a.prompt)-1]), unlucky)
		want = 0
	}
	var got []int
	var err error
	for token, e := range s.Stream(ctx, a.request()) {
		if err = e; err != nil {
			break
		}
		got = append(got, token.ID)
		if how == 0 && len(got) == at {
			cancel()
		}
		if how == 1 && len(got) == want {
			break
		}
	}
	if a.scores != nil && len(got) > 0 && !slices.Equal(a.scores, a.scored(s.limits, c.every)) {
		t.Errorf("%d: of the prompt %v, want %v", how, a.scores, a.scored(s.limits, c.every))
	}
	switch {
	case errors.Is(err, errPlanted) && c.fails:
		if len(got) > want || !slices.Equal(got, whole[:len(got)]) {
			t.Errorf("%d: %v before the step that failed, want %v", how, got, whole)
		}
	case !slices.Equal(got, whole[:want]):
		t.Errorf("%d at %d: %v (%v), alone %v", how, at, got, err, whole[:want])
	case how == 0 && want < len(whole) && !errors.Is(err, context.Canceled), how == 3 && err == nil,
		how != 0 && how != 1 && how != 3 && fmt.Sprint(err) != fmt.Sprint(wanted):
		t.Errorf("%d at %d of %d: %v, want %v", how, at, len(whole), err, wanted)
	}
}
