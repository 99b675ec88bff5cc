package simulate_test

import (
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// TestDrafts: times with drafts are the sums of steps, copies and replays that are counted by hand.
func TestDrafts(t *testing.T) {
	g := sized(t, synth.Options{Like: "qwen3.5-0.8b", Layers: 4, Vocab: 500})
	d := &virtual.Device{Profile: profile(t, "h100-nvlink")}
	m := compiled(t, g, passes.Options{Ranks: 2}, d)
	h, err := passes.Compile(g, passes.Options{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	list, err := lowering.Lower(h)
	if err != nil {
		t.Fatal(err)
	}
	v, err := virtual.New(list, d, exec.Setup{PageTokens: 128})
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := list[0].Want(graph.ChosenOutput)
	if err != nil {
		t.Fatal(err)
	}
	step := func(past, n int64) float64 { // of 4 sequences
		z := graph.Sizes{Tokens: 4 * n, Seqs: 4, Rows: 4 * n, Largest: graph.EvenShare(list[0].RowPlace(), 4, n, 2), Cached: 4 * (past + n), Pairs: 4 * (n*past + n*(n+1)/2)}
		s, err := v.Run(z, wanted)
		if err != nil {
			t.Fatal(err)
		}
		return s.Seconds()
	}
	settle := func(sequences, tokens int) float64 {
		keep, _ := v.TrialSeconds(4, 12)
		_, replay := v.TrialSeconds(sequences, tokens)
		return keep + replay
	}
	keep, _ := v.TrialSeconds(4, 12)
	near := func(a, b float64) bool { return math.Abs(a/b-1) < 1e-9 } // the clock runs on
	for _, c := range []struct {
		acceptance, tokens float64
		at                 []int64 // past tokens of each step
		settle             float64
	}{
		{1, 3, []int64{10, 13, 16}, keep},
		{0, 1, []int64{10, 11, 12, 13, 14, 15, 16}, settle(4, 4)},
		// Of 4 sequences 2 keep one token, 1 keeps two, and 1 keeps all three; in 1 of 256 steps all
		// sequences do, and nothing is replayed.
		{0.5, 1.75, []int64{10, 11, 13, 15}, keep + (settle(3, 4)-keep)*(1-1./256)},
	} {
		w := simulate.Workload{Batch: 4, Prompt: 10, Output: 8, Drafts: simulate.Drafts{Number: 2, Acceptance: c.acceptance}}
		r, err := m.Run(w)
		if err != nil {
			t.Fatal(err)
		}
		var want float64
		for _, past := range c.at {
			want += step(past, 3) + c.settle
		}
		x := r.Speculation
		if x == nil || !near(r.Decode.Seconds, want) || x.Tokens != c.tokens || r.Decode.Steps != len(c.at) {
			t.Errorf("acceptance %g: %+v, %+v; want %g seconds, %g tokens per step", c.acceptance, r.Decode, x, want, c.tokens)
			continue
		}
		w.Drafts = simulate.Drafts{}
		one, err := m.Run(w)
		if err != nil {
			t.Fatal(err)
		}
		if !near(x.Without, one.TPOT) || !near(x.Gain, one.TPOT*7/r.Decode.Seconds) || one.Speculation != nil {
			t.Errorf("acceptance %g: %+v beside TPOT %g", c.acceptance, x, one.TPOT)
		}
		for rank, n := range r.Memory {
			if got := n.State - one.Memory[rank].State; got != 4*m.Plan.Ranks[rank].Trial || got == 0 {
				t.Errorf("rank %d: drafts take %d bytes", rank, got)
			}
		}
	}
	for _, bad := range []simulate.Drafts{{-1, 0.5}, {16, 0.5}, {2, -0.1}, {2, 1.1}, {2, math.NaN()}} {
		if _, err := m.Run(simulate.Workload{Batch: 1, Prompt: 1, Output: 1, Drafts: bad}); err == nil || !strings.Contains(err.Error(), "drafts") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
