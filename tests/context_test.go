package tests

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// contextSteps are batches in parts: prompts of one token, of less than a block, of blocks and a
// rest, alone and beside others; then decode, and prompts that go on.
var contextSteps = [][]int{{200, 0, 0, 0, 0}, {1, 65, 3, 0, 0}, {64, 1, 1, 257, 1}, {1, 1, 1, 1, 1}, {130, 2, 0, 0, 70}}

// TestParts: in parts, all logits and states are those of one rank but for the order of sums.
func TestParts(t *testing.T) {
	counts := []int{2, 3, 4, 8}
	folders := goldens.Folders(t, "..")
	for _, c := range covering.Each(t, []int{len(folders)}, len(counts)) {
		dir, ranks := folders[c[0]], counts[c[1]]
		t.Run(fmt.Sprintf("%s/tp=%d", filepath.Base(dir), ranks), func(t *testing.T) {
			t.Parallel()
			var logits [][]float32
			var states []*krait.Snapshot
			for _, sharding := range []krait.Sharding{{}, {Ranks: ranks, Strategy: "context"}} {
				m := openModel(t, dir, krait.Options{Slots: 5, Sharding: sharding})
				got, kept := runSharded(t, m, contextSteps)
				if logits == nil {
					logits, states = got, kept
					continue
				}
				near(t, got, logits, kept, states)
			}
		})
	}
}

// apart is the largest difference of two lists in terms of the largest number, NaN where they are
// not as long.
func apart(a, b []float32) float64 {
	if len(a) != len(b) {
		return -1
	}
	most, size := mostApart([][]float32{a}, [][]float32{b}), 1e-9
	for _, x := range b {
		size = max(size, float64(x), -float64(x))
	}
	return most / size
}
