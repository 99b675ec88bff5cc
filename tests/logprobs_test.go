package tests

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// TestLogProbs: those of a generation are those of its stream and of a sequence's logits, on
// one rank and on three, and change no token.
func TestLogProbs(t *testing.T) {
	prompt := []int{3, 1, 4, 1, 5}
	for _, ranks := range []int{1, 3} {
		m := openModel(t, "../testdata/golden/mamba-a", krait.Options{Sharding: krait.Sharding{Ranks: ranks}})
		o := krait.Generate{MaxTokens: 6, Temperature: 1, Seed: 5, IgnoreEOS: true}
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

// TestMask: of the tokens that it leaves, one is chosen; where it leaves none, the generation
// fails.
func TestMask(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba-a", krait.Options{})
	mask := make([]int32, (m.Vocab()+31)/32)
	mask[1] = 1 << 7
	g, err := m.GenerateIDs(t.Context(), []int{1}, krait.Generate{MaxTokens: 3, IgnoreEOS: true, Mask: func() []int32 { return mask }})
	if err != nil || !slices.Equal(g.IDs, []int{39, 39, 39}) {
		t.Errorf("%v, %v", g, err)
	}
	mask[1] = 0
	if g, err := m.GenerateIDs(t.Context(), []int{1}, krait.Generate{Mask: func() []int32 { return mask }}); err == nil {
		t.Errorf("%v of no token", g.IDs)
	}
}

// TestPromptLogProbs: those of a prompt are those of its logits, alone and in company, in chunks of
// any size, with a prefix cache that has the prompt and without, to the last bit; on other
// numbers of ranks as close as all is. They change no token, and what is cached of the prompt
// afterwards is what was.
func TestPromptLogProbs(t *testing.T) {
	for _, name := range []string{"mamba-a", "jamba", "mamba2-g4"} {
		if name != "jamba" && goldens.Few(t) {
			continue
		}
		var one [][]krait.LogProbs // on one rank
		for i, o := range []krait.Options{
			{Slots: 2},
			{Slots: 3, MaxTokensPerStep: 66, PrefixCache: 64 << 20, PrefixGrain: 1, PageTokens: 5},
			{Slots: 3, MaxTokensPerStep: 66, PrefixCache: 64 << 20, PrefixGrain: 1, Sharding: krait.Sharding{Ranks: 3}},
			{Slots: 2, Sharding: krait.Sharding{Ranks: 3, Strategy: "hoisted"}},
		} {
			if i == 3 && name != "mamba2-g4" {
				continue
			}
			m := openModel(t, "../testdata/golden/"+name, o)
			var prompts [][]int
			for k, n := range []int{1, 2, 32, 33, 107} {
				prompts = append(prompts, tokensOf(m, n, uint64(k+3)))
			}
			check := func(k int, g *krait.Generation) {
				t.Helper()
				if len(g.PromptLogProbs) != len(prompts[k])-1 {
					t.Fatalf("%s/%d: %d log-probabilities of a prompt of %d tokens", name, i, len(g.PromptLogProbs), len(prompts[k]))
				}
				if i == 0 && len(one) == k {
					one = append(one, g.PromptLogProbs)
				}
				for at, p := range g.PromptLogProbs {
					want := one[k][at]
					if same := p.Chosen == want.Chosen && slices.Equal(p.Top, want.Top); o.Sharding.Ranks == 0 && !same || math.Abs(p.Chosen-want.Chosen) > 1e-4 || len(p.Top) != 3 {
						t.Fatalf("%s/%d, token %d of %d: %+v, want %+v", name, i, at+1, len(prompts[k]), p, want)
					}
				}
			}
			ask := func(k int, only bool) *krait.Generation {
				g, err := m.GenerateIDs(t.Context(), prompts[k], krait.Generate{MaxTokens: 3, IgnoreEOS: true, LogProbs: true, TopLogProbs: 3, PromptLogProbs: true, PromptOnly: only})
				if err != nil {
					t.Error(err)
					return &krait.Generation{}
				}
				return g
			}
			for k, prompt := range prompts {
				plain, err := m.GenerateIDs(t.Context(), prompt, krait.Generate{MaxTokens: 3, IgnoreEOS: true})
				if err != nil {
					t.Fatal(err)
				}
				warm := 0
				for last := 1; len(prompt) > 1 && o.PrefixCache > 0 && last < 5; last++ { // a cache has all but its last token
					g, err := m.GenerateIDs(t.Context(), append(slices.Clone(prompt[:len(prompt)-1]), (prompt[len(prompt)-1]+last)%m.Vocab()), krait.Generate{MaxTokens: 1})
					if err != nil {
						t.Fatal(err)
					}
					warm = g.CachedTokens
				}
				if o.PrefixCache > 0 && warm != len(prompt)-1 {
					t.Fatalf("%s/%d: the cache has %d tokens of %d", name, i, warm, len(prompt)-1)
				}
				for _, only := range []bool{true, false, true} {
					g := ask(k, only)
					check(k, g)
					if g.CachedTokens != 0 || g.Reason != krait.ReachedMax || !only && !slices.Equal(g.IDs, plain.IDs) || only && len(g.IDs)+len(g.LogProbs) > 0 {
						t.Errorf("%s/%d, only %v: %+v, want %v", name, i, only, g, plain.IDs)
					}
				}
				if i > 0 {
					continue
				}
				s, err := m.NewSequence()
				if err != nil {
					t.Fatal(err)
				}
				fed, err := s.Feed(t.Context(), prompt, krait.Selection{Logits: upTo(len(prompt))})
				if err != nil {
					t.Fatal(err)
				}
				s.Close()
				for at, p := range one[k] {
					if want := -surprise(fed.Logits[at], prompt[at+1]) * math.Ln2; math.Abs(p.Chosen-want) > 1e-5 {
						t.Errorf("%s, token %d: %v, want %v", name, at+1, p.Chosen, want)
					}
				}
			}
			got := make([]*krait.Generation, len(prompts)) // and in company, more than there are slots
			var all sync.WaitGroup
			for k := range prompts {
				all.Go(func() { got[k] = ask(k, k%2 == 0) })
				all.Go(func() { m.GenerateIDs(t.Context(), prompts[k], krait.Generate{MaxTokens: 9, IgnoreEOS: true}) })
			}
			all.Wait()
			for k, g := range got {
				check(k, g)
			}
			if o.PrefixCache > 0 { // what they left is of use
				g, err := m.GenerateIDs(t.Context(), append(slices.Clone(prompts[4]), 7), krait.Generate{MaxTokens: 1})
				if err != nil || g.CachedTokens == 0 {
					t.Errorf("%s/%d: %+v, %v", name, i, g, err)
				}
			}
		}
	}
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// TestPromptLogProbsElsewhere: a prompt whose log-probabilities are wanted is read here, and where
// none may be that is an error.
func TestPromptLogProbsElsewhere(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba-a", krait.Options{})
	_, address := serveModel(t, openModel(t, "../testdata/golden/mamba-a", krait.Options{}), transfer.ServerOptions{})
	for _, strict := range []bool{false, true} {
		p := prefillBy(t, m, prefill.Options{Address: address, Strict: strict})
		g, err := m.GenerateIDs(t.Context(), []int{1, 2, 3, 4}, krait.Generate{PromptLogProbs: true, PromptOnly: true, Prefill: p})
		switch {
		case strict && (err == nil || !strings.Contains(err.Error(), "PromptLogProbs")):
			t.Error(err)
		case !strict && (err != nil || g.Remote != nil || len(g.PromptLogProbs) != 3):
			t.Errorf("%+v, %v", g, err)
		}
	}
}
