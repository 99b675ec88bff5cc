package tests

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
)

// exactCase is a prompt, and how readers of it go on.
type exactCase struct {
	prompt []int
	asked  []exactAsked
}

// exactAsked is a prefix of the prompt with a tail of its own.
type exactAsked struct {
	common, tail int
	o            krait.Generate
}

func drawExact(t *rapid.T, vocab int) (c exactCase) {
	c.prompt = make([]int, rapid.IntRange(1, 300).Draw(t, "tokens"))
	for i := range c.prompt {
		c.prompt[i] = rapid.IntRange(0, vocab-1).Draw(t, "id")
	}
	for range rapid.IntRange(2, 4).Draw(t, "readings") {
		a := exactAsked{common: len(c.prompt), o: krait.Generate{MaxTokens: 4, IgnoreEOS: true, LogProbs: true, TopLogProbs: 5}}
		a.o.Temperature = rapid.SampledFrom([]float64{0, 0.7, 1.5}).Draw(t, "temperature")
		a.o.Seed = rapid.Uint64().Draw(t, "seed")
		if rapid.Bool().Draw(t, "parts") {
			a.common, a.tail = rapid.IntRange(0, len(c.prompt)).Draw(t, "common"), rapid.IntRange(1, 100).Draw(t, "tail")
		}
		c.asked = append(c.asked, a)
	}
	return c
}

// TestExactHits: generations that resume from states of earlier prompts at multiples of the grain
// have the tokens and the log-probabilities, to the last bit, that they have without a cache: of
// every family, on one rank and on several, with prompts in chunks of any size, at any temperature.
// A prompt that was read before is hit up to the last multiple of the grain.
func TestExactHits(t *testing.T) {
	chunks := []int{66, 0, 130, 98} // with the other slots' tokens
	for i, dir := range covering.Drawn(t, goldens.Folders(t, "..")) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			o := krait.Options{Slots: 3, Sharding: krait.Sharding{Ranks: 1 + i%2}}
			plain := openModel(t, dir, o)
			o.PrefixCache, o.MaxTokensPerStep = 1<<40, chunks[i%len(chunks)]
			m := openModel(t, dir, o)
			drawn := 0
			prop.CheckN(t, 2, func(t *rapid.T) {
				c := drawExact(t, m.Vocab())
				drawn++
				for k, a := range c.asked {
					prompt := slices.Clone(c.prompt[:a.common])
					for i := range a.tail {
						prompt = append(prompt, (7*i+k)%m.Vocab())
					}
					want, err := plain.GenerateIDs(t.Context(), prompt, a.o)
					if err != nil {
						t.Fatal(err)
					}
					a.o.Salt = fmt.Sprint(drawn) // an empty cache for each case
					least := 0
					for reading := range 2 {
						got, err := m.GenerateIDs(t.Context(), prompt, a.o)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got.IDs, want.IDs) || !reflect.DeepEqual(got.LogProbs, want.LogProbs) {
							t.Fatalf("reading %d of %d tokens, of which %d were cached: %v, without a cache %v", reading, len(prompt), got.CachedTokens, got, want)
						}
						if hit := got.CachedTokens; hit%64 != 0 || hit < least {
							t.Fatalf("reading %d of %d tokens: %d were cached, at least %d are to be", reading, len(prompt), hit, least)
						}
						least = (len(prompt) - 1) / 64 * 64
					}
				}
			})
		})
	}
}

// TestRegenerateRounded: with states in 16 bits, which each cut of a prompt rounds, the second
// reading of a prompt gives what the first gave.
func TestRegenerateRounded(t *testing.T) {
	for name, states := range map[string]string{"mamba-a": "conv=f16", "mamba2-g1": "conv=bf16,ssm=bf16", "jamba": "cache=f16,ssm=bf16"} {
		m := openModel(t, "../testdata/golden/"+name, krait.Options{PrefixCache: 1 << 40, Sharding: krait.Sharding{States: states}})
		prompt := randomIDs(700, m.Vocab())
		o := krait.Generate{MaxTokens: 4, IgnoreEOS: true, LogProbs: true, TopLogProbs: 5}
		var first *krait.Generation
		for reading, want := range []int{0, 640, 640} {
			g, err := m.GenerateIDs(t.Context(), prompt, o)
			if err != nil || g.CachedTokens != want {
				t.Fatalf("%s, reading %d: %+v, %v; want %d cached", name, reading, g, err, want)
			}
			if first == nil {
				first = g
			}
			if !slices.Equal(g.IDs, first.IDs) || !reflect.DeepEqual(g.LogProbs, first.LogProbs) {
				t.Errorf("%s, reading %d: %v, the first %v", name, reading, g, first)
			}
		}
	}
}
