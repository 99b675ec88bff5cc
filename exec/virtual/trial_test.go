package virtual

import (
	"context"
	"testing"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// TestTrialSeconds: what trials take is worked out by hand, of a scan of 8 channels with 2 states
// each.
func TestTrialSeconds(t *testing.T) {
	g, err := graph.Parse(`graph "g" stage=model ranks=1
input %x : f32[t 8]
input %b : f32[t 2]
input %seg : i32[s 3]
param @rates : f32[8 2]
state %h : f32[s 8 2]
%y %new = selective_scan %x %x @rates %b %b %h %seg
output y = %y
`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	is := func(v float64) cost.Figure { return cost.Figure{Value: v} }
	p := plain(0)
	p.Memory.Bandwidth, p.Compute["f32"] = is(1), cost.Compute{Peak: is(1e300), Achieved: is(1)} // a byte takes a second
	p.Overhead.GraphLaunch = is(1000)
	m, err := New(list, &Device{Profile: p}, exec.Setup{Slots: 4, Trials: 2})
	if err != nil {
		t.Fatal(err)
	}
	// States of two sequences are read and written, and x, x, b and b of five tokens.
	wantKeep := 1000 + 2*(2*8*2*4) + 2*5*(8+8+2+2)*4.0
	// The scan reads these, the rates, the states and the segments; it writes states and results.
	wantReplay := 1000 + 5*(8+8+2+2)*4 + 8*2*4 + 2*(2*8*2*4) + 2*3*4 + 5*8*4.0
	keep, replay := m.TrialSeconds(2, 5)
	if keep != wantKeep || replay != wantReplay {
		t.Errorf("keep takes %g seconds and replay %g, want %g and %g", keep, replay, wantKeep, wantReplay)
	}
	before := m.time
	if err := m.Replay(context.Background(), []state.Replay{{Tokens: 2}, {Tokens: 3}}); err != nil || m.time-before != wantReplay {
		t.Errorf("a replay took %g seconds, want %g; %v", m.time-before, wantReplay, err)
	}
	w := &exec.Work{Batch: graph.Batch{Sizes: graph.Sizes{Tokens: 6, Seqs: 3, Rows: 6}, Ends: []int{2, 3, 6}}, Outputs: lowering.OutputMask{false}}
	for _, trials := range [][]exec.Trial{nil, {{Sequence: 0}, {Sequence: 2}}} {
		w.Trials = trials
		before := m.time
		if _, err := m.Step(context.Background(), w); err != nil {
			t.Fatal(err)
		}
		took := m.time - before - m.last.Seconds()
		if want := wantKeep * float64(len(trials)) / 2; took != want {
			t.Errorf("%d trials take %g seconds beside their step, want %g", len(trials), took, want)
		}
	}
}
