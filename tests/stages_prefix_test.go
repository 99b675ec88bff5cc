package tests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// TestStagesPrefix: generations of many requests, whose prompts share prefixes, give the text of
// one rank on a mesh of stages and replicas, with hits of the prefix cache in both replicas; and on
// stages that have a strategy of their own for prefill.
func TestStagesPrefix(t *testing.T) {
	goldens.CI(t)
	var want []string
	for _, s := range []krait.Sharding{{Ranks: 2}, {Ranks: 2, Stages: 2, Replicas: 2}, {Ranks: 2, Stages: 3, Prefill: "context"}} {
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
		hits := m.Session().PrefixCache().Hits
		if none := s.Prefill != ""; !slices.Equal(got, want) || none != (hits == 0) { // prompts are shorter than its chunks
			t.Errorf("%+v: %d hits, and %q, want %q", s, hits, got, want)
		}
	}
}

// TestStagesTransfer: a prompt that one mesh with stages prefills goes on at another with the
// tokens of one rank, with prefix caches at both ends.
func TestStagesTransfer(t *testing.T) {
	const dir = "../testdata/golden/jamba"
	alone := openModel(t, dir, krait.Options{})
	meshes := []krait.Sharding{{Ranks: 2, Stages: 2}, {Stages: 3}, {Stages: 2, Replicas: 2}, {Ranks: 2, Stages: 2, Prefill: "context"}}
	for i, s := range meshes {
		if i%3 > 0 && goldens.Few(t) {
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			from := openModel(t, dir, krait.Options{Sharding: s, PageTokens: 16, PrefixCache: 1 << 24})
			to := openModel(t, dir, krait.Options{Sharding: meshes[(i+1)%len(meshes)], PageTokens: 7, PrefixCache: 1 << 24})
			server, _ := serveModel(t, from, transfer.ServerOptions{})
			p := prefillBy(t, to, prefill.Options{Server: server, Strict: true})
			prompt := randomIDs(90, alone.Vocab())
			for _, n := range []int{70, 90, 90} { // the second resumes from a prefix
				want, got := greedy(t, alone, prompt[:n], nil), greedy(t, to, prompt[:n], p)
				if !slices.Equal(got.IDs, want.IDs) || got.Remote == nil || got.Remote.Tokens != n-1 {
					t.Errorf("of %d tokens: %v by %+v, want %v", n, got.IDs, got.Remote, want.IDs)
				}
			}
		})
	}
}
