package cpu_test

import (
	"context"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/passes"
)

// TestRecord: a step's events are its steps, rank by rank, one after another, and the
// bytes of collectives are those that are counted.
func TestRecord(t *testing.T) {
	m, err := models.Open("../../testdata/golden/mamba-a")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g, err := passes.Compile(m.Graph, passes.Options{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	list, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	var got []exec.Event
	e, err := exec.New(list, m.Tensor, exec.Options{Device: &cpu.Device{}, Record: func(step []exec.Event) { got = append(got, step...) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	slot, err := e.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	b := &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: []int{1, 2, 3}}}, Choose: []exec.Choice{{}}}
	if _, err := e.Step(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	at, bytes := 0, int64(0)
	for _, s := range list {
		end, wanted := 0.0, lowering.Wanted{false, true}
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
