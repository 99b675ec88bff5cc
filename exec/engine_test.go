package exec_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/lowering"
)

// small is a graph with ids, a state and wanted rows.
const small = `graph "small" stage=model ranks=1
input %ids : i32[t]
input %seg : i32[s 3]
input %rows : i32[o]
param @table : f32[5 4]
param @taps : f32[4 3]
state %past : f32[s 4 2]
%e = embedding %ids @table
%c %new = conv1d %e @taps %past %seg
%y = select_rows %c %rows
output y = %y
`

func smallParams(name string) (graph.Array, error) {
	shape := map[string][]int{"table": {5, 4}, "taps": {4, 3}}[name]
	values := make([]float32, shape[0]*shape[1])
	for i := range values {
		values[i] = float32(i%7) - 2.5
	}
	return graph.ArrayOf(values, shape...), nil
}

func smallEngine(t *testing.T, o exec.Options) *stepper {
	t.Helper()
	e := newStepper(t, smallSchedules(t), smallParams, o)
	t.Cleanup(e.Close)
	return e
}

func smallSchedules(t *testing.T) []*lowering.Schedule {
	t.Helper()
	g, err := graph.Parse(small)
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func alloc(t *testing.T, e *stepper) int {
	t.Helper()
	slot, err := e.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestStepRefuses(t *testing.T) {
	e := smallEngine(t, exec.Options{Device: &cpu.Device{}, Slots: 2})
	slot := alloc(t, e)
	for want, sequences := range map[string][]exec.Sequence{
		"the batch is empty":                                {},
		"sequence 0 has no tokens":                          {{Slot: slot}},
		"there is no state slot 9; there are 2":             {{Slot: 9, Tokens: []int{1}}},
		"state slot 1 is not allocated":                     {{Slot: 1, Tokens: []int{1}}},
		"sequences 0 and 1 share state slot 0":              {{Slot: slot, Tokens: []int{1}}, {Slot: slot, Tokens: []int{1}}},
		"row 1 of 1 tokens":                                 {{Slot: slot, Tokens: []int{1}, Rows: []int{1}}},
		"row -1 of 1 tokens":                                {{Slot: slot, Tokens: []int{1}, Rows: []int{-1}}},
		"sequence 0: token 2 is 5; ids go from 0 to 4":      {{Slot: slot, Tokens: []int{0, 1, 5}}},
		"sequence 0: token 0 is -1; ids go from 0 to 4":     {{Slot: slot, Tokens: []int{-1}}},
		"the graph reads token ids and none are given":      {{Slot: slot, Len: 3}},
		"sequence 0: token 0 is 4294967296; ids go from 0 ": {{Slot: slot, Tokens: []int{1 << 32}}},
	} {
		wantError(t, e.Step(context.Background(), &exec.Batch{Sequences: sequences}), want)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Step(ended, &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1}}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	// Refusals come before the first launch: the sequence goes on.
	if err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1}}}}); err != nil {
		t.Error(err)
	}
}

func TestSlots(t *testing.T) {
	e := smallEngine(t, exec.Options{Device: &cpu.Device{}, Slots: 2})
	a, b := alloc(t, e), alloc(t, e)
	_, err := e.Alloc()
	wantError(t, err, "all 2 state slots are taken")
	feed := func(slot int) []float32 {
		t.Helper()
		if err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2}}}}); err != nil {
			t.Fatal(err)
		}
		s, err := e.State(slot, "past")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := feed(a)
	feed(b)
	if err := e.Free(a); err != nil {
		t.Fatal(err)
	}
	wantError(t, e.Free(a), "it was freed")
	wantError(t, e.Free(7), "there is no state slot 7")
	wantError(t, e.Free(-1), "there is no state slot")
	c := alloc(t, e)
	if s, _ := e.State(c, "past"); s[0] != 0 {
		t.Errorf("a new sequence begins with the state %v", s)
	}
	if again := feed(c); again[0] != first[0] {
		t.Errorf("a reused slot ends with %v, a fresh one with %v", again, first)
	}
	_, err = e.State(c, "future")
	wantError(t, err, "the model has no state future")
	wantError(t, e.SetState(c, "past", []float32{1}), "state past has 8 elements, 1 given")

	// The handle of the sequence that was freed does not reach the new one.
	before, _ := e.State(c, "past")
	_, err = e.State(a, "past")
	wantError(t, err, "it was freed")
	_, err = e.Len(a)
	wantError(t, err, "it was freed")
	_, err = e.Snapshot(a)
	wantError(t, err, "it was freed")
	for _, err := range []error{e.Free(a), e.Reset(a), e.SetLen(a, 3), e.SetState(a, "past", before), e.Restore(a, &state.Snapshot{}),
		e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: a, Tokens: []int{1, 2}}}})} {
		wantError(t, err, "it was freed")
	}
	if n, err := e.Len(c); err != nil || n != 2 {
		t.Errorf("the new sequence has %d tokens, %v", n, err)
	}
	if after, _ := e.State(c, "past"); !slices.Equal(after, before) {
		t.Errorf("a stale handle changed the state from %v to %v", before, after)
	}
	_, err = e.Output("z")
	wantError(t, err, "the graph has no output z")
}

// TestFailureInEveryStep lets a kernel panic, and the context end, at each step:
// the error names the step, and the sequence cannot be used until it is reset.
func TestFailureInEveryStep(t *testing.T) {
	for _, op := range []string{"embedding", "conv1d", "select_rows"} {
		for _, how := range []string{"panic", "cancel"} {
			ctx, cancel := context.WithCancel(context.Background())
			set := maps.Clone(kernelscpu.Kernels)
			armed := false
			k := set[op]
			set[op] = kernels.Kernel{Units: k.Units, Run: func(c *kernels.Call, lo, hi int) {
				if armed && how == "panic" {
					panic("planted")
				}
				if armed {
					cancel()
				}
				k.Run(c, lo, hi)
			}}
			e := smallEngine(t, exec.Options{Device: &cpu.Device{Kernels: set}, Slots: 2})
			slot, other := alloc(t, e), alloc(t, e)
			batch := &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2, 3}}}}
			armed = true
			err := e.Step(ctx, batch)
			armed = false
			switch {
			case how == "panic":
				wantError(t, err, "("+op+"): BUG: planted")
			case op == "select_rows": // the last step: nothing is left to stop
				if err != nil {
					t.Error(err)
				}
				continue
			case !errors.Is(err, context.Canceled):
				t.Errorf("%s: %v", op, err)
			}
			wantError(t, e.Step(context.Background(), batch), "was left in the middle of a step")
			if err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: other, Tokens: []int{1}}}}); err != nil {
				t.Errorf("another sequence: %v", err)
			}
			if err := e.Reset(slot); err != nil {
				t.Error(err)
			}
			if err := e.Step(context.Background(), batch); err != nil {
				t.Errorf("after a reset: %v", err)
			}
			cancel()
		}
	}
}

func TestNewRefuses(t *testing.T) {
	g, err := graph.Parse(small)
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	_, err = exec.New(s, smallParams, exec.Options{})
	wantError(t, err, "no device to run on")
	_, err = exec.New(s, smallParams, exec.Options{Device: &cpu.Device{Workers: -1}})
	wantError(t, err, "-1 workers")
	_, err = exec.New(s, smallParams, exec.Options{Device: &cpu.Device{}, Slots: -1})
	wantError(t, err, "-1 slots")
	_, err = exec.New(s, smallParams, exec.Options{Device: &cpu.Device{Kernels: kernels.Set{}}})
	wantError(t, err, "e: there is no kernel for embedding")
	_, err = exec.New(s, func(name string) (graph.Array, error) {
		a, _ := smallParams(name)
		a.Shape, a.From = []int{2, 10}, "file: "+name
		return a, nil
	}, exec.Options{Device: &cpu.Device{}})
	wantError(t, err, "parameter table: file: table has shape [2 10], expected [5 4]")
}

func TestInputsAreChecked(t *testing.T) {
	g, err := graph.Parse("graph \"g\" stage=model ranks=1\ninput %x : f32[t 2]\n%y = silu %x\noutput y = %y\n")
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	e := newStepper(t, s, nil, exec.Options{Device: &cpu.Device{}})
	defer e.Close()
	sequences := []exec.Sequence{{Slot: alloc(t, e), Len: 2}}
	for want, inputs := range map[string]map[string]graph.Array{
		"input x is missing in the batch":                     nil,
		"input x has shape [3 2] and 24 bytes":                {"x": graph.ArrayOf(make([]float32, 6), 3, 2)},
		"input x has shape [4], the graph expects f32[t 2]":   {"x": graph.ArrayOf(make([]float32, 4), 4)},
		"input x has shape [4 1], the graph expects f32[t 2]": {"x": graph.ArrayOf(make([]float32, 4), 4, 1)},
		"input x is i32, the graph expects f32":               {"x": {DType: graph.I32, Shape: []int{2, 2}, Data: make([]byte, 16)}},
	} {
		wantError(t, e.Step(context.Background(), &exec.Batch{Sequences: sequences, Inputs: inputs}), want)
	}
}

// slowDevice does nothing but notice whether it is closed in the middle of a step.
type slowDevice struct{ *testing.T }

func (d slowDevice) Open([]*lowering.Schedule, comm.World, exec.Setup) (exec.Machine, error) {
	return &slowMachine{T: d.T}, nil
}

type slowMachine struct {
	exec.Machine // of what is not asked for
	*testing.T
	steps  atomic.Int32 // running
	closed bool
}

func (m *slowMachine) ClearSlot(int) error { return nil }

func (m *slowMachine) Step(context.Context, *exec.Work) ([]kernels.Tensor, error) {
	m.steps.Add(1)
	time.Sleep(time.Millisecond)
	if m.steps.Add(-1); m.closed {
		m.Error("a step of a machine that is closed")
	}
	return nil, nil
}

func (m *slowMachine) Close() {
	if m.steps.Load() > 0 || m.closed {
		m.Error("closed in the middle of a step, or twice")
	}
	m.closed = true
}

// TestCloseWhileStepping: Close waits for the running step and ends 16 goroutines that step;
// nothing works afterwards, and closing again does nothing.
func TestCloseWhileStepping(t *testing.T) {
	for range 20 {
		e := smallEngine(t, exec.Options{Slots: 16, Device: slowDevice{t}})
		var all sync.WaitGroup
		begun := make(chan bool, 16)
		for range 16 {
			slot := alloc(t, e)
			all.Go(func() {
				var err error
				for n := 0; err == nil; n++ {
					if _, err = e.Engine.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2}}}}); n == 0 {
						begun <- true
					}
				}
				if !errors.Is(err, exec.ErrClosed) {
					t.Errorf("a step ended with %v", err)
				}
			})
		}
		for range 16 {
			<-begun
		}
		all.Go(e.Close)
		e.Close()
		all.Wait()
		e.Close()
		_, alloc := e.Alloc()
		_, step := e.Engine.Step(context.Background(), &exec.Batch{})
		_, state := e.State(0, "past")
		_, length := e.Len(0)
		_, snap := e.Snapshot(0)
		for i, err := range []error{alloc, step, state, length, snap, e.Free(0), e.Reset(0), e.SetLen(0, 1), e.SetState(0, "past", nil), e.Restore(0, nil)} {
			if !errors.Is(err, exec.ErrClosed) {
				t.Errorf("call %d after Close: %v", i, err)
			}
		}
	}
}
