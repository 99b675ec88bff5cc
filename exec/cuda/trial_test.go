package cuda

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// TestTrialsNeedKernels: a recurrence without a kernel for GPUs is refused if there may be trials,
// by name, before anything is loaded.
func TestTrialsNeedKernels(t *testing.T) {
	seg := lowering.Ref{Type: graph.Type{DType: graph.I32, Dims: []graph.Dim{{Sym: graph.Seqs}, graph.Size(3)}}}
	s := &lowering.Schedule{Buffers: []lowering.Buffer{{Space: lowering.Input}},
		Steps: []lowering.Step{{Kind: lowering.Launch, Name: "layer", Op: &graph.Op{Name: "mine"}, Args: []lowering.Ref{seg}}}}
	if err := refuseTrials(s, 0); err != nil {
		t.Error(err)
	}
	err := refuseTrials(s, 1)
	if err == nil || !strings.Contains(err.Error(), "layer: operation mine has no kernel for GPUs, which speculative decoding requires there") {
		t.Error(err)
	}
}

// TestTrialKey: only batches that need them have launches for each kind of sequences.
func TestTrialKey(t *testing.T) {
	prompt, single := segment{tokens: 5}, segment{tokens: 1, decodes: true}
	for name, c := range map[string]struct {
		segments  []segment
		invariant bool
		want      trialKey
	}{
		"prompts":             {[]segment{prompt, prompt}, true, trialKey{}},
		"single tokens":       {[]segment{single, single}, true, trialKey{}},
		"both":                {[]segment{prompt, single}, true, trialKey{prompts: true, tokens: 1}},
		"both, not invariant": {[]segment{prompt, single}, false, trialKey{}},
	} {
		x := trials{segments: c.segments}
		if got := x.key(c.invariant); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
