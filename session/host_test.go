package session_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestPrefixCacheHost: generations that resume from states evicted to host memory,
// one by one and many at once, are those without a cache.
func TestPrefixCacheHost(t *testing.T) {
	few := goldens.Few(t)
	for i, name := range []string{"zamba2", "jamba", "mamba2-g1", "attention"} {
		if few && name != "jamba" && name != "attention" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, o := "../testdata/golden/"+name, krait.Options{Slots: 4, Sharding: krait.Sharding{Ranks: 1 + i%3}}
			if name == "attention" {
				dir = attentionOnly(t)
			}
			plain := openModel(t, dir, o)
			list := sharing(rand.New(rand.NewPCG(12, uint64(i))), 30, plain.Vocab(), 60)
			want := atOnce(t, plain, list)
			costs := prefixModel(plain)
			o.PrefixCache, o.PrefixGrain = costs.Bytes(70, true), 4
			for _, o.PrefixCacheHost = range []int64{1 << 40, 4 * costs.Bytes(70, true)} {
				m := openModel(t, dir, o)
				for i, c := range list {
					g, err := m.GenerateIDs(t.Context(), c.prompt, c.o)
					if err != nil || !slices.Equal(g.IDs, want[i]) {
						t.Fatalf("generation %d, of which %d tokens were cached: %+v, %v, without %v", i, g.CachedTokens, g, err, want[i])
					}
				}
				s := m.Session().PrefixCache()
				if s.Failures > 0 || s.Evictions == 0 || s.HostBytes == 0 || s.HostBytes > o.PrefixCacheHost || (o.PrefixCacheHost == 1<<40) != (s.HostEvictions == 0) {
					t.Errorf("%+v", s)
				}
				if got := atOnce(t, m, list); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
					t.Errorf("at once: %v, want %v", got, want)
				}
				if s := m.Session().PrefixCache(); s.HostHits == 0 {
					t.Errorf("nothing came back: %+v", s)
				}
			}
		})
	}
}

// TestPrefixOptions: options of a prefix cache without a cache are errors, and one
// that holds nothing is a warning.
func TestPrefixOptions(t *testing.T) {
	for want, o := range map[string]krait.Options{
		"PrefixPolicy is set without PrefixCache":            {PrefixPolicy: "lru"},
		"PrefixCacheHost is set without PrefixCache":         {PrefixCacheHost: 1},
		"PrefixCache: policy \"lfu\": it must be none":       {PrefixCache: 1, PrefixPolicy: "lfu"},
		"PrefixCache: host tier: a capacity of -1 bytes; it": {PrefixCache: 1, PrefixCacheHost: -1},
	} {
		if _, err := krait.Embedded(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, dir := range []string{"../testdata/golden/mamba-a", attentionOnly(t)} {
		plain := openModel(t, dir, krait.Options{})
		least := prefixModel(plain).Bytes(0, true)
		if least == 0 {
			least = plain.Engine().KVBytes()
		}
		for bytes, warned := range map[int64]bool{least - 1: true, least: false} {
			w := fmt.Sprint(openModel(t, dir, krait.Options{PrefixCache: bytes}).Warnings)
			if strings.Contains(w, "holds nothing") != warned {
				t.Errorf("%s with %d bytes: %s", dir, bytes, w)
			}
		}
	}
}
