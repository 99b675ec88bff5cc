package tests

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait"
)

// TestStagesPrefix: generations of many requests, whose prompts share prefixes, give the text of
// one rank on a mesh of stages and replicas, with hits of the prefix cache in both replicas.
func TestStagesPrefix(t *testing.T) {
	var want []string
	for _, s := range []krait.Sharding{{Ranks: 2}, {Ranks: 2, Stages: 2, Replicas: 2}} {
		m := embeddedModel(t, krait.Options{Sharding: s, Slots: 4, PrefixCache: 64 << 20, PrefixGrain: 32})
		var got []string
		prompts := slices.Repeat([]string{"And the LORD said unto Moses, Speak unto the children of Israel, and say", "In the beginning"}, 3)
		for range 2 {
			list, err := m.GenerateBatch(t.Context(), prompts, krait.Generate{MaxTokens: 24})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				got = append(got, x.Text)
			}
		}
		if want == nil {
			want = got
		}
		if hits := m.Session().PrefixCache().Hits; !slices.Equal(got, want) || hits == 0 {
			t.Errorf("%+v: %d hits, and %q, want %q", s, hits, got, want)
		}
	}
}
