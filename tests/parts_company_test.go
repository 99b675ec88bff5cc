package tests

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// TestPartsInCompany: where prompts are prefilled in parts, requests that share steps, whose
// prompts share beginnings and are cached or not, have the log-probabilities, to the bit, that each
// has alone.
func TestPartsInCompany(t *testing.T) {
	goldens.CI(t)
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	list := []krait.Sharding{{Ranks: 2, Strategy: "context"}, {Ranks: 3, Prefill: "context"}, {Ranks: 2, Prefill: "context", Strategy: "sequence"}}
	for _, c := range covering.Each(t, []int{len(folders)}, len(list), 2) {
		dir, o := folders[c[0]], krait.Options{Slots: 4, MaxTokensPerStep: 280, Sharding: list[c[1]]}
		t.Run(fmt.Sprintf("%s/%d/cache=%d", filepath.Base(dir), c[1], c[2]), func(t *testing.T) {
			t.Parallel()
			alone := openModel(t, dir, o)
			o.PrefixCache = int64(c[2]) << 24
			m := openModel(t, dir, o)
			prop.CheckN(t, 1, func(t *rapid.T) { // fewer than prompts that fit in the cache
				shared := randomIDs(900, alone.Vocab())
				var all sync.WaitGroup
				for i := range 6 {
					n := rapid.IntRange(1, 880).Draw(t, "prompt")
					g := krait.Generate{MaxTokens: rapid.IntRange(1, 12).Draw(t, "tokens"), LogProbs: true, IgnoreEOS: true}
					prompt := append(slices.Clone(shared[:n]), i%alone.Vocab(), 3)
					want, err := logProbsOf(context.Background(), alone, prompt, g)
					if err != nil {
						t.Fatal(err)
					}
					all.Go(func() {
						if got, err := logProbsOf(context.Background(), m, prompt, g); err != nil || !slices.Equal(got, want) {
							t.Errorf("a prompt of %d tokens gives other bits in company: %v, %v, want %v", len(prompt), err, got, want)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// logProbsOf generates, and returns the log-probabilities of the tokens.
func logProbsOf(ctx context.Context, m *krait.Model, prompt []int, g krait.Generate) (list []float64, err error) {
	out, err := m.GenerateIDs(ctx, prompt, g)
	if err != nil {
		return nil, err
	}
	for _, p := range out.LogProbs {
		list = append(list, p.Chosen)
	}
	return list, nil
}
