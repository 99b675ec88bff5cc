package schedule

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/krait-ml/krait/exec"
)

// of is a request for at most most tokens, of a prompt that is a number and its successors.
func of(first, prompt, most int) asked {
	a := asked{prompt: make([]int, prompt), most: most, last: -1, seed: uint64(first)}
	for i := range a.prompt {
		a.prompt[i] = first + i
	}
	return a
}

// reading is a request that is being read elsewhere.
type reading struct {
	done chan bool
	ids  []int
	err  error
}

func (s *Scheduler) begin(ctx context.Context, q Request) *reading {
	r := &reading{done: make(chan bool)}
	go func() {
		defer close(r.done)
		r.ids, r.err = collect(s, ctx, q)
	}()
	return r
}

func (r *reading) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// inBubble runs a test where synctest.Wait returns when all others wait for something.
func inBubble(t *testing.T, l Limits, run func(t *testing.T, s *Scheduler, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, f := newScheduler(t, l)
		run(t, s, f)
		s.live.Wait()
		empty(t, s, f)
	})
}

// gate lets a step begin when it is told so.
func gate(f *fake) chan error {
	c := make(chan error)
	f.before = func(ctx context.Context, _ int) error {
		select {
		case err := <-c:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c
}

// TestShared: those that wait when a step ends are together in the next.
func TestShared(t *testing.T) {
	inBubble(t, Limits{Slots: 16, Tokens: 100}, func(t *testing.T, s *Scheduler, f *fake) {
		c := gate(f)
		var all []*reading
		for i := range 20 {
			all = append(all, s.begin(t.Context(), of(i, 3, 4).request()))
		}
		synctest.Wait()
		close(c)
		for i, r := range all {
			if <-r.done; r.err != nil || !slices.Equal(r.ids, of(i, 3, 4).alone(s.limits, false)) {
				t.Errorf("request %d: %v, %v", i, r.ids, r.err)
			}
		}
		// One in the first step, 15 from the second on, the last 4 when the first ends.
		if l := s.Load(); f.largest != 16 || l.Steps > 10 || l.Tokens != 20*6 {
			t.Errorf("%+v, at most %d at once", l, f.largest)
		}
	})
}

// TestSlowReader: one that is not read runs on, makes room for others, and is there when
// it is read.
func TestSlowReader(t *testing.T) {
	inBubble(t, Limits{Slots: 1, Tokens: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		slow := of(5, 4, 100)
		next, stop := iter.Pull2(s.Stream(t.Context(), slow.request()))
		defer stop()
		first, err, _ := next()
		if err != nil {
			t.Fatal(err)
		}
		quick := of(7, 2, 3)
		if ids, err := collect(s, t.Context(), quick.request()); err != nil || !slices.Equal(ids, quick.alone(s.limits, false)) {
			t.Errorf("the quick one: %v, %v", ids, err)
		}
		got := []int{first.ID}
		for token, err, ok := next(); ok; token, err, ok = next() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, token.ID)
		}
		if !slices.Equal(got, slow.alone(s.limits, false)) {
			t.Errorf("the slow one: %v", got)
		}
	})
}

// TestWaiting: one that waits for a slot begins when that is free; one that is cancelled
// while it waits ends at the next step, and has taken nothing.
func TestWaiting(t *testing.T) {
	inBubble(t, Limits{Slots: 1, Tokens: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		c := gate(f)
		ctx, cancel := context.WithCancel(t.Context())
		first := s.begin(t.Context(), of(1, 2, 3).request())
		synctest.Wait()
		second := s.begin(ctx, of(2, 2, 3).request())
		synctest.Wait()
		third := s.begin(t.Context(), of(3, 2, 3).request())
		synctest.Wait()
		if l := s.Load(); l.Running != 1 || l.Waiting != 2 {
			t.Errorf("%+v", l)
		}
		cancel()
		c <- nil
		synctest.Wait()
		if !second.ended() || !errors.Is(second.err, context.Canceled) || first.ended() {
			t.Errorf("cancelled: %v, the first has ended: %v", second.err, first.ended())
		}
		close(c)
		<-first.done
		<-third.done
		if first.err != nil || third.err != nil || len(third.ids) != 3 {
			t.Errorf("%v, %v", first.err, third.err)
		}
	})
}

// TestStepFails: its error ends the requests in the step, and no other: not one that
// waits for a slot, nor one whose prompt had no place in it.
func TestStepFails(t *testing.T) {
	inBubble(t, Limits{Slots: 3, Tokens: 6, Grain: 4}, func(t *testing.T, s *Scheduler, f *fake) {
		c := gate(f)
		var all []*reading
		for i, prompt := range []int{2, 4, 4, 1} { // the first two fill a step, the last has no slot
			all = append(all, s.begin(t.Context(), of(i, prompt, 5).request()))
			synctest.Wait()
		}
		c <- nil // of the first alone
		c <- errPlanted
		close(c)
		for i, r := range all {
			<-r.done
			want := of(i, []int{2, 4, 4, 1}[i], 5).alone(s.limits, false)
			if i < 2 {
				if want = want[:1-i]; !errors.Is(r.err, errPlanted) || !slices.Equal(r.ids, want) {
					t.Errorf("request %d: %v, %v", i, r.ids, r.err)
				}
			} else if r.err != nil || !slices.Equal(r.ids, want) {
				t.Errorf("request %d was not in the step: %v, %v", i, r.ids, r.err)
			}
		}
	})
}

// TestInterrupt: a step is stopped in its middle when no request is left that needs it, and
// not before.
func TestInterrupt(t *testing.T) {
	inBubble(t, Limits{Slots: 2, Tokens: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		c := gate(f)
		ctx, cancel := context.WithCancel(t.Context())
		other, cancelOther := context.WithTimeout(t.Context(), time.Hour)
		defer cancelOther()
		first := s.begin(ctx, of(1, 2, 5).request())
		synctest.Wait()
		second := s.begin(other, of(2, 2, 5).request())
		synctest.Wait()
		c <- nil // now both are in a step
		synctest.Wait()
		cancel()
		synctest.Wait()
		if first.ended() || second.ended() || f.steps != 2 {
			t.Errorf("ended in the middle of step %d: %v, %v", f.steps, first.ended(), second.ended())
		}
		time.Sleep(time.Hour) // the bubble's
		synctest.Wait()
		if !first.ended() || !second.ended() || !errors.Is(first.err, context.Canceled) || !errors.Is(second.err, context.DeadlineExceeded) {
			t.Errorf("the step was not stopped: %v, %v", first.err, second.err)
		}
		close(c) // steps after it are not stopped
		if ids, err := collect(s, t.Context(), of(3, 2, 5).request()); len(ids) != 5 || err != nil {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

// TestClose waits for the running step, and ends the requests in it and in the queue.
func TestClose(t *testing.T) {
	inBubble(t, Limits{Slots: 1, Tokens: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		c := gate(f)
		first := s.begin(t.Context(), of(1, 2, 5).request())
		synctest.Wait()
		second := s.begin(t.Context(), of(1, 2, 5).request())
		synctest.Wait()
		var all sync.WaitGroup
		var closed atomic.Bool
		for range 2 {
			all.Go(func() {
				s.Close()
				closed.Store(true)
			})
		}
		synctest.Wait()
		if first.ended() || second.ended() || closed.Load() {
			t.Error("Close does not wait for the step")
		}
		c <- nil
		all.Wait()
		<-first.done
		<-second.done
		if len(first.ids) != 1 || !errors.Is(first.err, exec.ErrClosed) || !errors.Is(second.err, exec.ErrClosed) {
			t.Errorf("%v, %v, %v", first.ids, first.err, second.err)
		}
	})
}

// TestSlotsOfOthers: where others have all slots, a request waits for those of other
// requests, and without these it is told.
func TestSlotsOfOthers(t *testing.T) {
	inBubble(t, Limits{Slots: 2, Tokens: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		one, _ := f.Alloc()
		c := gate(f)
		first := s.begin(t.Context(), of(1, 2, 2).request())
		synctest.Wait()
		second := s.begin(t.Context(), of(2, 2, 2).request())
		synctest.Wait()
		close(c)
		<-first.done
		<-second.done
		if first.err != nil || second.err != nil {
			t.Errorf("%v, %v", first.err, second.err)
		}
		other, _ := f.Alloc()
		if _, err := collect(s, t.Context(), of(3, 2, 2).request()); err == nil || err.Error() != "all slots are taken" {
			t.Error(err)
		}
		f.Free(one)
		f.Free(other)
	})
}

// TestStopsReading: who stops reading ends the request, and goes on when the slot is free.
func TestStopsReading(t *testing.T) {
	inBubble(t, Limits{Slots: 1, Tokens: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		c := make(chan bool)
		f.before = func(context.Context, int) error { <-c; return nil } // does not look at its context
		done := make(chan bool)
		go func() {
			for range s.Stream(t.Context(), of(1, 2, 1<<30).request()) {
				break
			}
			close(done)
		}()
		c <- true
		synctest.Wait() // in the second step
		select {
		case <-done:
			t.Error("reading has ended, and the slot is in use")
		default:
		}
		c <- true
		<-done
		if n := f.taken(); n != 0 || f.steps != 2 {
			t.Errorf("%d slots are taken, after %d steps", n, f.steps)
		}
	})
}

// TestPanickingReader: who panics while reading gives the slot back, too.
func TestPanickingReader(t *testing.T) {
	inBubble(t, Limits{Slots: 1, Tokens: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		defer func() {
			if recover() == nil || f.taken() != 0 {
				t.Errorf("%d slots are taken", f.taken())
			}
		}()
		for range s.Stream(t.Context(), of(1, 2, 1000).request()) {
			panic("reader")
		}
	})
}

func TestRefuses(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	s, f := newScheduler(t, Limits{Slots: 2, Tokens: 10, Context: 8, Room: 7})
	for want, c := range map[string]struct {
		a   asked
		ctx context.Context
	}{
		"an empty prompt has no next token":                                        {of(1, 0, 5), t.Context()},
		"MaxTokens is 0":                                                           {of(1, 1, 0), t.Context()},
		"a sequence of 9 tokens; the KV cache has room for 8":                      {of(1, 9, 1), t.Context()},
		"a prompt of 4 tokens and up to 5 more; the KV cache has room for 7":       {of(1, 4, 5), t.Context()},
		"a prompt of 1 tokens and up to 8 more; the KV cache has room for 7: ask ": {of(1, 1, 1<<62), t.Context()},
		"context canceled":                                                         {of(1, 1, 1), cancelled},
	} {
		if ids, err := collect(s, c.ctx, c.a.request()); len(ids) > 0 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %s", ids, err, want)
		}
	}
	empty(t, s, f)
	if f.steps > 0 {
		t.Error("there were steps")
	}
}

// TestProgress: a long prompt is told of after each chunk, in order, by who reads.
func TestProgress(t *testing.T) {
	s, _ := newScheduler(t, Limits{Slots: 2, Tokens: 9, Grain: 4})
	q := of(1, 21, 2).request()
	var seen []int
	q.OnPrompt = func(read int) { seen = append(seen, read) }
	for range s.Stream(t.Context(), q) {
		seen = append(seen, -1)
	}
	if !slices.Equal(seen, []int{8, 16, 21, -1, -1}) {
		t.Error(seen)
	}
}

// TestStepsAllocateNothing: in a steady state the scheduler's part of a step does not.
func TestStepsAllocateNothing(t *testing.T) {
	s, _ := newScheduler(t, Limits{Slots: 4, Tokens: 9, Grain: 4})
	s.running = true // no other goroutine runs steps
	for i := range 4 {
		if _, err := s.enter(t.Context(), []Request{of(i, 3, 1<<30).request()}); err != nil {
			t.Fatal(err)
		}
	}
	tokens := exec.Results{Tokens: []int32{1, 2, 3, 4}}
	step := func() {
		s.prepare()
		s.fill()
		if err := s.keep(&tokens); err != nil {
			t.Fatal(err)
		}
		s.settle(nil, 0)
	}
	for range 1000 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}
