package session_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
)

// attentionConfig is a hybrid's, of which all layers attend.
const attentionConfig = `{"model_type": "jamba", "attn_layer_offset": 0, "attn_layer_period": 1, "expert_layer_offset": 0,
	"expert_layer_period": 1, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
	"num_experts": 1, "num_hidden_layers": 2, "vocab_size": 64, "num_experts_per_tok": 1}`

func attentionOnly(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "attention")
	if _, err := synth.Write(t.Context(), dir, synth.Options{Config: []byte(attentionConfig), From: "config", DType: "f32", Seed: 1}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPrefixCacheAttention: a model without states reuses the longest beginning that it has
// seen, which may end anywhere, and generates what it does without a cache.
func TestPrefixCacheAttention(t *testing.T) {
	dir := attentionOnly(t)
	for ranks := 1; ranks <= 3; ranks++ {
		o := krait.Options{Slots: 4, Sharding: krait.Sharding{Ranks: ranks}}
		plain := openModel(t, dir, o)
		list := sharing(rand.New(rand.NewPCG(11, uint64(ranks))), 30, plain.Vocab(), 60)
		want := atOnce(t, plain, list)
		costs := prefixModel(plain)
		if costs.StateBytes != 0 || costs.CacheBytes == 0 {
			t.Fatalf("%+v", costs)
		}
		for _, o.PrefixCache = range []int64{1 << 40, costs.Bytes(90, true) * 2, 1} {
			m := openModel(t, dir, o)
			var before [][]int
			for i, c := range list {
				g, err := m.GenerateIDs(t.Context(), c.prompt, c.o)
				if err != nil || !slices.Equal(g.IDs, want[i]) {
					t.Fatalf("%d bytes, generation %d, of which %d tokens were cached: %+v, %v, without %v", o.PrefixCache, i, g.CachedTokens, g, err, want[i])
				}
				if longest := longestCommon(before, c.prompt); o.PrefixCache == 1<<40 && g.CachedTokens != longest || g.CachedTokens > longest {
					t.Errorf("%d bytes, generation %d: %d tokens were cached, want %d", o.PrefixCache, i, g.CachedTokens, longest)
				}
				before = append(before, slices.Concat(c.prompt, g.IDs[:len(g.IDs)-1]))
			}
			if s := m.Session().PrefixCache(); s.Failures > 0 || s.States > 0 || s.Bytes > o.PrefixCache || o.PrefixCache == 1 && s.Hits > 0 || (o.PrefixCache == 1<<40) != (s.Evictions == 0) {
				t.Errorf("%d bytes: %+v", o.PrefixCache, s)
			}
			if got := atOnce(t, m, list); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
				t.Errorf("%d bytes, at once: %v, want %v", o.PrefixCache, got, want)
			}
		}
	}
}

// longestCommon is the longest beginning of a prompt that one before has, less a token to compute.
func longestCommon(before [][]int, prompt []int) (longest int) {
	for _, b := range before {
		n := 0
		for n < min(len(prompt)-1, len(b)) && prompt[n] == b[n] {
			n++
		}
		longest = max(longest, n)
	}
	return longest
}

// TestPrefixCacheAttentionCUDA is the same on a simulated GPU, briefly.
func TestPrefixCacheAttentionCUDA(t *testing.T) {
	m := openModel(t, attentionOnly(t), krait.Options{Slots: 2, PrefixCache: 1 << 30, Device: &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}})
	o := krait.Generate{MaxTokens: 3, IgnoreEOS: true}
	var ids []string
	for _, prompt := range [][]int{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 9}, {1, 2, 3, 9}} {
		g, err := m.GenerateIDs(t.Context(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, fmt.Sprint(g.CachedTokens, g.IDs))
	}
	if ids[0][:1] != "0" || ids[1][:1] != "3" || ids[2] != ids[1] {
		t.Error(ids)
	}
}

// TestPrefixModel: FLOPs and bytes as the graph and the engine say.
func TestPrefixModel(t *testing.T) {
	for _, name := range []string{"mamba-a", "jamba"} {
		m := openModel(t, "../testdata/golden/"+name, krait.Options{Sharding: krait.Sharding{Ranks: 2}})
		c := prefixModel(m)
		if (c.FLOPsPerTokenSquared > 0) != (name == "jamba") || (c.CacheBytes > 0) != (name == "jamba") || c.FLOPsPerToken <= 0 || c.StateBytes <= 0 || c.Check() != nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
