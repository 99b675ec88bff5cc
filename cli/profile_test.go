package cli

import (
	"context"
	"math"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/visualize/timeline"
)

// TestProfileFull: each measured step that a profile has room for has its prediction, which
// begins where it did, although the two count different events.
func TestProfileFull(t *testing.T) {
	p := profileFlags{file: "run.json", hw: "a100-nvlink", device: new("cpu"), measured: timeline.Log{Most: 1200}}
	m, err := krait.Embedded(krait.Options{Sharding: krait.Sharding{Ranks: 2}, Batches: p.batch, Record: p.record})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := p.opened(m); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(context.Background(), "a", krait.Generate{MaxTokens: 20}); err != nil || p.err != nil {
		t.Fatal(err, p.err)
	}
	if p.measured.Left == 0 || len(p.predicted.Steps) != len(p.measured.Steps) {
		t.Fatalf("%d steps are measured, %d left and %d predicted", len(p.measured.Steps), p.measured.Left, len(p.predicted.Steps))
	}
	for i := range p.measured.Steps {
		from, _ := p.measured.Steps[i].Bounds()
		if at, _ := p.predicted.Steps[i].Bounds(); math.Abs(at-from) > 1e-9 {
			t.Errorf("step %d begins at %g and its prediction at %g", i, from, at)
		}
	}
}
