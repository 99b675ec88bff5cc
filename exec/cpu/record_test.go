package cpu_test

import (
	"context"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// recorded is a model on two ranks, its schedules, and a slot.
func recorded(t *testing.T, o exec.Options) (*exec.Engine, []*lowering.Schedule, int) {
	t.Helper()
	m, err := checkpoint.Open("../../testdata/golden/mamba-a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, err := passes.Compile(m.Graph, passes.Options{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	list, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	o.Device = &cpu.Device{}
	e, err := exec.New(list, m.Tensor, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	slot, err := e.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	return e, list, slot
}

// TestRecord: a step's events are its steps, rank by rank, one after another, and the
// bytes of collectives are those that are counted.
func TestRecord(t *testing.T) {
	var got []exec.Event
	e, list, slot := recorded(t, exec.Options{Record: func(step []exec.Event) { got = append(got, step...) }})
	b := &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2, 3}}}, Choices: []exec.Choice{{}}}
	if _, err := e.Step(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	at, bytes := 0, int64(0)
	for _, s := range list {
		end, wanted := 0.0, lowering.OutputMask{false, true}
		for i := range s.Steps {
			st := &s.Steps[i]
			if st.Kind == lowering.Record || st.Kind == lowering.Wait || st.For != nil && (s.Rank > 0 || !wanted.Needs(st.For)) {
				continue
			}
			if at == len(got) {
				t.Fatalf("%d events, and more steps", at)
			}
			x := got[at]
			if x.Rank != s.Rank || x.Name != st.Name || x.Op != st.Op.Name || x.Kind != st.Kind || x.Stream != st.Stream || x.Start < end || x.End < x.Start {
				t.Fatalf("event %d is %+v after %g, want %s", at, x, end, st)
			}
			if end = x.End; x.Rank == 0 {
				bytes += x.Bytes
			}
			at++
		}
	}
	want := int64(0)
	for _, c := range e.Collectives() {
		want += c.Bytes
	}
	if at != len(got) || bytes != want || want == 0 {
		t.Errorf("%d events of %d steps, %d bytes of %d", len(got), at, bytes, want)
	}
}

// TestRecording: only steps are recorded for which Recording returned true.
func TestRecording(t *testing.T) {
	told, asked, on := 0, 0, false
	e, _, slot := recorded(t, exec.Options{Record: func(step []exec.Event) { told += len(step) }, Recording: func() bool { asked++; return on }})
	whole := 0
	for i, want := range []bool{false, true, false, true} {
		before := told
		on = want
		if _, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2}}}}); err != nil {
			t.Fatal(err)
		}
		if got := told - before; got > 0 != want || asked != i+1 || whole > 0 && want && got != whole {
			t.Errorf("step %d: %d events, of %d before; asked %d times", i, got, whole, asked)
		} else if want {
			whole = got
		}
	}
}
