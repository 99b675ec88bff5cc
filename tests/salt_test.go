package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// TestSalt: a prompt resumes from those of its own salt, and finds nothing of another's, nor of
// those without one: on the device, in the host's memory, and in a folder when the model is
// opened again. All tokens are those without a cache.
func TestSalt(t *testing.T) {
	salts := []string{"ann", "", "bob", "ann\x00", "\xff", "\xfe"} // the last two are the same in JSON
	for i, name := range []string{"jamba", "mamba-a", "attention"} {
		if i > 0 && goldens.Few(t) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, o := "../testdata/golden/"+name, krait.Options{Slots: 2, Sharding: krait.Sharding{Ranks: 1 + i%2}}
			if name == "attention" {
				dir = attentionOnly(t)
			}
			plain, err := krait.Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			prompt := tokensOf(plain, 66, 3) // after 64 of these the first leaves a state for the second
			var want [5][]int                // by the token that follows
			for i := range want {
				g, err := plain.GenerateIDs(t.Context(), append(slices.Clone(prompt), i), krait.Generate{MaxTokens: 4, IgnoreEOS: true})
				if err != nil {
					t.Fatal(err)
				}
				want[i] = g.IDs
			}
			o.PrefixCache = 64 << 20
			rows, state := plain.Engine().KVBytes(), plain.Engine().StateBytes()
			for tier, change := range map[string]func(*krait.Options){
				"device": func(*krait.Options) {},
				"host":   func(o *krait.Options) { o.PrefixCache, o.PrefixCacheHost = 75*rows+2*state, 64<<20 }, // a sequence, not two
				"folder": func(o *krait.Options) { o.PrefixCacheDir = t.TempDir() },
			} {
				o := o
				change(&o)
				m, err := krait.Open(dir, o)
				if err != nil {
					t.Fatal(err)
				}
				asked, missed := 0, 0
				ask := func(salt string, hit bool) {
					t.Helper()
					i := asked % len(want)
					asked++
					g, err := m.GenerateIDs(t.Context(), append(slices.Clone(prompt), i), krait.Generate{MaxTokens: 4, IgnoreEOS: true, Salt: salt})
					if err != nil {
						t.Fatal(err)
					}
					if hit && g.CachedTokens == 0 && tier == "host" { // on a loaded machine computing may be sooner done
						hit = false
						missed++
					}
					if (g.CachedTokens > 0) != hit || !slices.Equal(g.IDs, want[i]) {
						t.Errorf("%s, salt %q: %d tokens are cached, hit %v is right; %v, want %v", tier, salt, g.CachedTokens, hit, g.IDs, want[i])
					}
				}
				thrice := func(salt string, hit bool) {
					ask(salt, hit)
					ask(salt, true)
					ask(salt, true)
				}
				for i, salt := range salts {
					if tier == "folder" && i == len(salts)-1 {
						break // this one comes when the model is opened again
					}
					thrice(salt, false)
				}
				for _, salt := range salts[:len(salts)-1] {
					ask(salt, true)
				}
				if s := m.Session().PrefixCache(); tier == "host" && s.HostHits+missed == 0 {
					t.Errorf("the host's memory had nothing: %+v", s)
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				if tier != "folder" {
					continue
				}
				if m, err = krait.Open(dir, o); err != nil {
					t.Fatal(err)
				}
				for _, salt := range salts[:len(salts)-1] { // while nothing says that computing is sooner done than loading
					ask(salt, true)
				}
				thrice(salts[len(salts)-1], false)
				ask(fmt.Sprintf("%q", salts[0]), false)
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				if m.Warnings != nil {
					t.Error(m.Warnings)
				}
			}
		})
	}
}

// TestPrefillSalt: the cache of a prefill server hits those of the same salt
// only, also where two salts would be one as JSON's text; a salt that is too long is an error.
func TestPrefillSalt(t *testing.T) {
	dir := "../testdata/golden/jamba"
	from := openModel(t, dir, krait.Options{PrefixCache: 64 << 20})
	to := openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: 2}})
	_, address := serveModel(t, from, transfer.ServerOptions{})
	p := prefillBy(t, to, prefill.Options{Address: address, Strict: true})
	prompt := tokensOf(to, 65, 3)
	ask := func(salt string, last int) (hit int64) {
		t.Helper()
		before := from.Session().PrefixCache().HitTokens
		ids := append(slices.Clone(prompt), last, 0)
		g, err := to.GenerateIDs(t.Context(), ids, krait.Generate{MaxTokens: 4, IgnoreEOS: true, Salt: salt, Prefill: p})
		if err != nil {
			t.Fatal(err)
		}
		if want := greedy(t, to, ids, nil); !slices.Equal(g.IDs, want.IDs) || g.Remote == nil {
			t.Errorf("salt %q: %v, want %v", salt, g.IDs, want.IDs)
		}
		return from.Session().PrefixCache().HitTokens - before
	}
	salts := []string{"ann", "", "bob", "\xff", "\xfe", strings.Repeat("x", 4096)}
	for _, salt := range salts {
		if a, b, c := ask(salt, 1), ask(salt, 2), ask(salt, 3); a != 0 || b != 64 || c != 64 { // the first leaves a state for the second
			t.Errorf("salt %.9q: hits of %d, %d and %d tokens", salt, a, b, c)
		}
	}
	for _, salt := range salts {
		if hit := ask(salt, 4); hit != 64 {
			t.Errorf("salt %.9q: a hit of %d tokens", salt, hit)
		}
	}
	if _, err := to.GenerateIDs(t.Context(), prompt, krait.Generate{Salt: strings.Repeat("x", 4097), Prefill: p}); err == nil || !strings.Contains(err.Error(), "4097 bytes") {
		t.Error(err)
	}
}
