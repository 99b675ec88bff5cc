package schedule

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// TestRequests lets many requests of three tenants run at once: some are read slowly, some no
// further than to some token, some cancelled, some end early, some fork one prompt, some have
// logits from which nothing can be chosen, some have drafts, and now and then a step fails. Each
// gets what it gets alone, all or the beginning, though it is paused and its state may be lost, and
// no slot, state or room stays taken.
func TestRequests(t *testing.T) {
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	var paused, restarted, forked, drafted, accepted, turned int64
	for range 120 {
		l := Limits{Slots: 1 + r.IntN(5), Grain: 1 + r.IntN(6), Patience: r.IntN(10), Quantum: r.IntN(4), Snapshots: r.IntN(4)}
		l.Trials = r.IntN(l.Slots + 1)
		l.Tokens = l.Slots - 1 + l.Grain + r.IntN(20)
		if r.IntN(2) == 0 {
			l.Page = 1 + r.IntN(4)
			l.Room = l.Page * (50/l.Page + r.IntN(20))
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
		c := company{fails: r.IntN(3) == 0, every: every, turns: r.IntN(4)}
		t.Run(fmt.Sprintf("%+v %+v", l, c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.run(t, l, rand.New(rand.NewPCG(seed, r.Uint64())))
				paused, restarted, forked, turned = paused+s.done.Paused, restarted+s.done.Restarted, forked+c.forked, turned+c.turned
				d := s.done.Drafts["oracle"]
				drafted, accepted = drafted+d.Tokens, accepted+d.Accepted
			})
		})
	}
	t.Logf("%d requests were paused, %d computed again, %d went on from another's prompt, %d drafts of %d were right", paused, restarted, forked, accepted, drafted)
	if paused == 0 || forked == 0 || accepted == 0 || accepted == drafted || turned == 0 {
		t.Error("no request was paused, or went on from another's prompt, or had drafts of which some were right, or ran in turns")
	}
}

// company is what TestRequests does with limits.
type company struct {
	fails, every   bool
	turns          int // batches that run in turns
	forked, turned int64
}

// reader is a request, how it is read, and what comes of that.
type reader struct {
	asked
	how, at int
	whole   []int // what it gets alone
	want    int   // of that
	wanted  error // that may come
}

// plan changes a request to what is to become of it.
func (c *company) plan(a asked, l Limits, how, at int) *reader {
	p := &reader{asked: a, how: how, at: at, whole: a.alone(l, c.every)}
	p.want = len(p.whole)
	if n := l.Context; n > 0 && len(a.prompt)+len(p.whole) > n && len(p.whole) < a.most {
		p.wanted = l.tooLong(n + 1)
	}
	switch how {
	case 0: // cancelled
		p.want = min(at, p.want)
	case 1: // read so far
		p.want = min(max(1, at), p.want)
	case 2: // the last is met early
		p.last = p.whole[min(at, p.want-1)]
		p.want = slices.Index(p.whole, p.last) + 1
		p.wanted = nil
	case 3: // nothing can be chosen
		p.prompt = append(slices.Clone(a.prompt[:len(a.prompt)-1]), unlucky)
		p.want = 0
	}
	return p
}

func (c *company) run(t *testing.T, l Limits, r *rand.Rand) *Scheduler {
	s, f := newScheduler(t, l)
	f.every, f.turns = c.every, c.turns
	if c.fails {
		f.unsettled = errPlanted
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
		a.tenant = []string{"a", "b", "c"}[r.IntN(3)]
		a.drafts, a.limits, a.every = r.IntN(waysToDraft), &s.limits, c.every
		at := r.IntN(a.most + 1)
		if l.Context > 0 && len(a.prompt) > l.Context {
			continue
		}
		if n := r.IntN(8); n > 3 && how != 3 {
			all.Go(func() { c.several(t, s, a, n-2) })
			continue
		}
		all.Go(func() {
			p := c.plan(a, s.limits, how, at)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.one(t, s, p, s.Stream(ctx, p.request()), cancel)
		})
	}
	all.Wait()
	s.live.Wait()
	empty(t, s, f)
	if q := &s.queue; q.held != 0 || q.snapshots != 0 || len(q.tenants) > 3 || f.saved > 0 || f.mostSaved > l.Snapshots {
		t.Errorf("left: room for %d tokens, %d snapshots, %d states of at most %d, tenants %v", q.held, q.snapshots, f.saved, f.mostSaved, q.tenants)
	}
	c.turned = int64(f.inTurns)
	s.Close()
	if _, err := collect(s, t.Context(), drawAsked(r, 5, 5).request()); !errors.Is(err, exec.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	return s
}

// several reads requests of one prompt, each in a way of its own.
func (c *company) several(t *testing.T, s *Scheduler, a asked, n int) {
	var list []Request
	var plans []*reader
	for i := range n {
		one := a
		one.seed += uint64(i)
		if one.most = 1 + (a.most+7*i)%15; a.scores != nil {
			one.scores = make([]float32, len(a.scores))
		}
		p := c.plan(one, s.limits, []int{1, 2, 4}[(int(a.seed%3)+i)%3], (i*5)%(one.most+1))
		q := p.request()
		q.OnFork = func(i int) {
			c.forked++
			copy(p.scores, plans[i].scores)
		}
		list, plans = append(list, q), append(plans, p)
	}
	var all sync.WaitGroup
	for i, stream := range s.Streams(t.Context(), list) {
		all.Go(func() { c.one(t, s, plans[i], stream, nil) })
	}
	all.Wait()
}

// one reads a request as planned.
func (c *company) one(t *testing.T, s *Scheduler, p *reader, stream iter.Seq2[Token, error], cancel func()) {
	how, at, whole, want := p.how, p.at, p.whole, p.want
	if how == 0 && at == 0 {
		cancel()
	}
	var got []int
	var err error
	for token, e := range stream {
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
	if p.scores != nil && len(got) > 0 && !slices.Equal(p.scores, p.scored(s.limits, c.every)) {
		t.Errorf("%d: of the prompt %v, want %v", how, p.scores, p.scored(s.limits, c.every))
	}
	switch {
	case errors.Is(err, errPlanted) && c.fails:
		if len(got) > want || !slices.Equal(got, whole[:len(got)]) {
			t.Errorf("%d: %v before the step that failed, want %v", how, got, whole)
		}
	case !slices.Equal(got, whole[:want]):
		t.Errorf("%d at %d: %v (%v), alone %v", how, at, got, err, whole[:want])
	case how == 0 && want < len(whole) && !errors.Is(err, context.Canceled), how == 3 && err == nil,
		how != 0 && how != 1 && how != 3 && fmt.Sprint(err) != fmt.Sprint(p.wanted):
		t.Errorf("%d at %d of %d: %v, want %v", how, at, len(whole), err, p.wanted)
	}
}
