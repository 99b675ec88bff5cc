package krait

import (
	"math"
	"slices"
	"testing"
)

// TestLogProbs: those of a generation are those of its stream and of a sequence's logits, on
// one rank and on three, and change no token.
func TestLogProbs(t *testing.T) {
	prompt := []int{3, 1, 4, 1, 5}
	for _, ranks := range []int{1, 3} {
		m := openModel(t, "testdata/golden/mamba-a", Options{Sharding: Sharding{Ranks: ranks}})
		o := Generate{MaxTokens: 6, Temperature: 1, Seed: 5, IgnoreEOS: true}
		plain, err := m.GenerateIDs(t.Context(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		o.LogProbs, o.TopLogProbs = true, 3
		g, err := m.GenerateIDs(t.Context(), prompt, o)
		if err != nil || !slices.Equal(g.IDs, plain.IDs) || len(g.LogProbs) != len(g.IDs) {
			t.Fatalf("%v with %d log-probabilities, %v without (%v)", g.IDs, len(g.LogProbs), plain.IDs, err)
		}
		i := 0
		for token, err := range m.StreamIDs(t.Context(), prompt, o) {
			if err != nil || token.ID != g.IDs[i] || token.LogProbs.Chosen != g.LogProbs[i].Chosen || !slices.Equal(token.LogProbs.Top, g.LogProbs[i].Top) {
				t.Fatalf("token %d: %+v in the stream, %+v (%v)", i, token, g.LogProbs[i], err)
			}
			i++
		}
		s, err := m.NewSequence()
		if err != nil {
			t.Fatal(err)
		}
		logits, err := s.Step(t.Context(), prompt...)
		for i, id := range g.IDs {
			if err != nil {
				t.Fatal(err)
			}
			if want := -surprise(logits, id) * math.Ln2; math.Abs(g.LogProbs[i].Chosen-want) > 1e-5 || len(g.LogProbs[i].Top) != 3 {
				t.Errorf("token %d: %+v, want %v", i, g.LogProbs[i], want)
			}
			logits, err = s.Step(t.Context(), id)
		}
	}
}

// TestMask: of the tokens that it leaves, one is chosen; where it leaves none, the generation fails.
func TestMask(t *testing.T) {
	m := openModel(t, "testdata/golden/mamba-a", Options{})
	mask := make([]int32, (m.Vocab()+31)/32)
	mask[1] = 1 << 7
	g, err := m.GenerateIDs(t.Context(), []int{1}, Generate{MaxTokens: 3, IgnoreEOS: true, Mask: func() []int32 { return mask }})
	if err != nil || !slices.Equal(g.IDs, []int{39, 39, 39}) {
		t.Errorf("%v, %v", g, err)
	}
	mask[1] = 0
	if g, err := m.GenerateIDs(t.Context(), []int{1}, Generate{Mask: func() []int32 { return mask }}); err == nil {
		t.Errorf("%v of no token", g.IDs)
	}
}
