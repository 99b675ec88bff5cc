package schedule

import (
	"context"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// TestShare: while there are both, prompts have their share of the time, not more by a step, and
// not less by what it takes to measure; whatever steps take, and even where one that was measured
// took far longer than others.
func TestShare(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		s := share{most: rapid.Float64Range(0.05, 0.95).Draw(t, "share")}
		alone := time.Duration(rapid.IntRange(1, 1000).Draw(t, "alone")) * time.Microsecond
		chunk := time.Duration(rapid.IntRange(1, 50_000).Draw(t, "chunk")) * time.Microsecond
		pause := time.Duration(rapid.IntRange(0, 100).Draw(t, "pause")) * time.Millisecond
		var all, prompts time.Duration
		for step := 0; all < 100*(alone+chunk)+20*pause; step++ {
			took, read := alone, s.prefills(true)
			if read {
				took += chunk
				prompts += chunk
			}
			if step == 0 {
				took += pause
			}
			all += took
			s.ran(took, true, read)
			if most := s.most*all.Seconds() + 9*(chunk+pause).Seconds(); prompts.Seconds() > most {
				t.Fatalf("after step %d prompts had %v of %v, with a share of %v", step, prompts, all, s.most)
			}
		}
		// Steps are whole, and of nine one is without.
		c, a := chunk.Seconds(), alone.Seconds()
		least := min(c/(c/s.most+a), 8*c/(8*c+9*a))
		if got := (prompts + chunk + 2*alone).Seconds() / (all - pause).Seconds(); got < 0.9*least {
			t.Fatalf("prompts had %v of %v, with a share of %v: %v, least %v", prompts, all, s.most, got, least)
		}
	})
}

// TestShareAlone: prompts get all steps without decodes, and without a share; and steps that
// prompts did not take while there were none they do not get later.
func TestShareAlone(t *testing.T) {
	var none share
	for range 20 {
		if none.ran(time.Second, true, true); !none.prefills(true) {
			t.Fatal("no share, and prompts wait")
		}
	}
	s := share{most: 0.5}
	if s.prefills(true) || !s.prefills(false) {
		t.Error("the first step beside others is to be measured, and only that")
	}
	s.ran(time.Millisecond, true, false)
	s.ran(time.Second, true, true)
	if s.prefills(true) || !s.prefills(false) {
		t.Error("after a second of a prompt the others are to have theirs")
	}
	s.ran(time.Millisecond, false, true)
	if !s.prefills(true) {
		t.Error("a debt to those who have ended")
	}
	for range 1000 {
		s.ran(time.Millisecond, true, false)
	}
	s.ran(11*time.Millisecond, true, true)
	steps := 0
	for ; !s.prefills(true); steps++ {
		s.ran(time.Millisecond, true, false)
	}
	if steps != 9 { // 10 ms of the prompt, of which 1 ms went to the others in the same step
		t.Errorf("%d steps after a prompt's 10 ms, want 9", steps)
	}
}

// clocked is a fake whose steps take a millisecond for those that are continued, and a tenth of one
// for each token of a prompt.
type clocked struct{ *fake }

func (c clocked) Step(ctx context.Context, b *exec.Batch, read func(*exec.Results) error) error {
	continued := time.Duration(0)
	for _, q := range b.Sequences {
		if len(q.Tokens) == 1 {
			continued = time.Millisecond
		} else {
			time.Sleep(time.Duration(len(q.Tokens)) * 100 * time.Microsecond)
		}
	}
	time.Sleep(continued)
	return c.fake.Step(ctx, b, read)
}

// TestPromptShare: while prompts of 400 tokens come one after the other, who is continued takes as
// much longer as the share says, and they end.
func TestPromptShare(t *testing.T) {
	for share, want := range map[float64]float64{0: 6, 0.25: 1 / 0.75, 0.5: 2, 0.75: 3.5} { // the last as steps are whole
		inBubble(t, Limits{Slots: 3, Tokens: 52, Grain: 1, PromptShare: share}, func(t *testing.T, s *Scheduler, f *fake) {
			s.engine = clocked{f}
			begun := time.Now()
			ctx, stop := context.WithCancel(t.Context())
			reader := s.begin(t.Context(), of(1, 2, 1000).request())
			read := 0
			go func() {
				for !reader.ended() {
					if _, err := collect(s, ctx, of(5, 400, 1).request()); err == nil {
						read++
					}
				}
			}()
			<-reader.done
			took := time.Since(begun).Seconds()
			stop()
			if reader.err != nil || read < 3 || took > 1.02*want+0.04 || took < 0.9*want {
				t.Errorf("a share of %v: a thousand steps of a millisecond took %.2f s, want %.2f; %d prompts were read; %v", share, took, want, read, reader.err)
			}
		})
	}
}
