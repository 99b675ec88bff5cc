package prefix

import (
	"math/rand/v2"
	"testing"
)

// TestReused: rows count as admitted and as used once each, and used are those that hits had,
// however nodes are split and joined.
func TestReused(t *testing.T) {
	for name, m := range models {
		rng := rand.New(rand.NewPCG(1, 7))
		tree := NewTree(m, 300, 0)
		used := map[string]bool{} // rows that are held, by the prefixes that they end
		var want Reused
		var texts []string
		for i := range 300 {
			input, output := drawRequest(rng, texts)
			text := input + output
			texts = append(texts, text)
			want.CacheTokens += int64(len(text) - tree.Matched(tokensOf(text)))
			hit := tree.Serve(request(float64(i), input, output))
			for n := 1; n <= hit; n++ {
				if !used[text[:n]] {
					used[text[:n]] = true
					want.CacheTokensUsed++
				}
			}
			for row := range used {
				if tree.Matched(tokensOf(row)) < len(row) {
					delete(used, row)
				}
			}
		}
		if got := tree.reused; got.CacheTokens != want.CacheTokens || got.CacheTokensUsed != want.CacheTokensUsed || tree.evictions == 0 {
			t.Errorf("%s: %+v with %d evictions, want %+v", name, got, tree.evictions, want)
		}
	}
}
