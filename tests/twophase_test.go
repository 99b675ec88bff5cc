package tests

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestTwoPhases: with a strategy for prefill and one for decode, all logits and states are those of one
// rank but for the order of sums: of prompts alone, beside decodes, and after them.
func TestTwoPhases(t *testing.T) {
	counts, decodes, prefills := []int{2, 3, 4, 8}, []string{"channel", "replicated-x", "sequence"}, []string{"context", "sequence", "channel"}
	folders := goldens.Folders(t, "..")
	for _, c := range covering.Each(t, []int{len(folders)}, len(counts), len(decodes), len(prefills)) {
		dir, s := folders[c[0]], krait.Sharding{Ranks: counts[c[1]], Strategy: decodes[c[2]], Prefill: prefills[c[3]]}
		t.Run(fmt.Sprintf("%s/tp=%d/%s/%s", filepath.Base(dir), s.Ranks, s.Prefill, s.Strategy), func(t *testing.T) {
			t.Parallel()
			want, states := runSharded(t, openModel(t, dir, krait.Options{Slots: 5}), contextSteps)
			m, err := krait.Open(dir, krait.Options{Slots: 5, Sharding: s})
			if err != nil {
				if _, alone := krait.Open(dir, krait.Options{Sharding: krait.Sharding{Ranks: s.Ranks, Strategy: s.Strategy}}); alone == nil {
					t.Fatal(err)
				}
				return // the model has nothing that the strategy is about
			}
			defer m.Close()
			got, kept := runSharded(t, m, contextSteps)
			near(t, got, want, kept, states)
		})
	}
}

// near compares logits by step and snapshots by sequence.
func near(t *testing.T, got, want [][]float32, kept, states []*krait.Snapshot) {
	t.Helper()
	for i := range got {
		if d := apart(got[i], want[i]); !(d >= 0 && d <= 1e-4) {
			t.Errorf("the logits of step %d are %.2g of the largest from those of one rank", i, d)
		}
	}
	for i, s := range kept {
		for name, want := range states[i].States {
			if d := apart(s.States[name], want); !(d >= 0 && d <= 1e-4) {
				t.Errorf("sequence %d: %s is %.2g of its largest from that of one rank", i, name, d)
			}
		}
	}
}
