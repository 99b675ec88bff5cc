package exec_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
)

// try takes tokens of a sequence on trial.
func try(e *stepper, slot int, ids ...int) error {
	return e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids, Trial: true}}})
}

// settle keeps tokens of a trial.
func settle(e *stepper, slot, tokens int) error {
	return e.Settle(context.Background(), []exec.Kept{{Slot: slot, Tokens: tokens}})
}

// pastOf is the state of a sequence.
func pastOf(t *testing.T, e *stepper, slot int) []float32 {
	t.Helper()
	s, err := e.State(slot, "past")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTrialRefuses: what cannot be done with trials is an error that says why, and changes nothing.
func TestTrialRefuses(t *testing.T) {
	e := smallEngine(t, exec.Options{Device: &cpu.Device{}, Slots: 3, Trials: 1})
	a, b := alloc(t, e), alloc(t, e)
	wantError(t, try(e, a, make([]int, 17)...), "sequence 0: 17 tokens on trial; the limit is 16")
	wantError(t, e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: a, Tokens: []int{1}, Trial: true}, {Slot: b, Tokens: []int{1}, Trial: true}}}),
		"sequence 1: no spare is free for a trial")
	wantError(t, settle(e, a, 1), "trial 0: state slot 0 has no tokens on trial")
	wantError(t, try(e, a, 0, 9), "token 1 is 9")
	if err := try(e, a, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	wantError(t, try(e, b, 1), "sequence 0: no spare is free for a trial: Settle ends trials, and Options.Trials sets how many there may be")
	wantError(t, settle(e, a, 0), "trial 0: 0 tokens are to be kept; state slot 0 has 3 on trial, of which it keeps at least 1")
	wantError(t, settle(e, a, 4), "trial 0: 4 tokens are to be kept")
	wantError(t, settle(e, b, 1), "trial 0: state slot 1 has no tokens on trial")
	wantError(t, settle(e, 9, 1), "trial 0: there is no state slot 9")
	wantError(t, e.Settle(context.Background(), []exec.Kept{{Slot: a, Tokens: 2}, {Slot: a, Tokens: 2}}), "trial 1: state slot 0 is named twice")
	_, err := e.Len(a)
	wantError(t, err, "state slot 0 has tokens on trial; Settle keeps some of them first")
	if err := settle(e, a, 2); err != nil {
		t.Fatal(err)
	}
	want := alloc(t, e)
	for _, id := range []int{1, 2} {
		if err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: want, Tokens: []int{id}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := pastOf(t, e, a), pastOf(t, e, want); !slices.Equal(got, want) {
		t.Errorf("the state is %v, want %v", got, want)
	}
	wantError(t, settle(e, a, 1), "trial 0: state slot 0 has no tokens on trial")
	for _, trials := range []int{-1, 4} {
		g := smallSchedules(t)
		_, err := exec.New(g, smallParams, exec.Options{Device: &cpu.Device{}, Slots: 3, Trials: trials})
		wantError(t, err, "trials at the same time, of 3 slots; the number must be from 0 to that of the slots")
	}
}

// TestTrialEnds: whatever ends a trial frees its spare, and a failure in the middle breaks the
// sequence, which can be reset.
func TestTrialEnds(t *testing.T) {
	e := smallEngine(t, exec.Options{Device: &cpu.Device{}, Slots: 2, Trials: 1})
	a, b := alloc(t, e), alloc(t, e)
	if err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: b, Tokens: []int{3, 4}}}}); err != nil {
		t.Fatal(err)
	}
	snapshot, err := e.Snapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	before := pastOf(t, e, b)
	kept, err := e.CopyState(b)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Free()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, end := range map[string]func() error{
		"Reset":   func() error { return e.Reset(a) },
		"Restore": func() error { return e.Restore(a, snapshot) },
		"Resume":  func() error { return e.Resume(a, kept) },
		"Free": func() error {
			if err := cmp.Or(e.Free(a), try(e, b, 1), settle(e, b, 1)); err != nil {
				return err
			}
			a = alloc(t, e)
			return nil
		},
		"a replay that is stopped": func() error {
			err := e.Settle(ended, []exec.Kept{{Slot: a, Tokens: 1}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a context that has ended: %v", err)
			}
			_, err = e.Len(a)
			wantError(t, err, "was left in the middle of a step that failed; free or reset it")
			return e.Reset(a)
		},
	} {
		if err := try(e, a, 1, 2); err != nil {
			t.Fatalf("before %s: %v", name, err)
		}
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := make([]float32, 8)
		if name == "Restore" || name == "Resume" {
			want = before
		}
		if got := pastOf(t, e, a); !slices.Equal(got, want) {
			t.Errorf("%s: the state is %v, want %v", name, got, want)
		}
		if err := try(e, a, 1); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		if err := settle(e, a, 1); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
}

// TestTrialAllocatesNothing: neither trials nor replays allocate once their sizes have been seen.
func TestTrialAllocatesNothing(t *testing.T) {
	e := smallEngine(t, exec.Options{Device: &cpu.Device{Workers: 1}, Slots: 1, Trials: 1})
	slot := alloc(t, e)
	b := &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2, 3}, Trial: true}}}
	kept := []exec.Kept{{Slot: slot, Tokens: 2}}
	step := func() {
		if err := cmp.Or(e.Step(context.Background(), b), e.Settle(context.Background(), kept)); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(50, step); n > 0 {
		t.Errorf("%v allocations per trial", n)
	}
}
