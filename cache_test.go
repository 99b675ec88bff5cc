package krait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/goldens"
)

// sharing are generations whose prompts share beginnings: some of a few, then turns of
// conversations, each with the one before, and what it gave.
func sharing(r *rand.Rand, n, vocab int) []call {
	begins := calls(r, 4, vocab, 40)
	list := make([]call, n)
	for i := range list {
		from := begins[r.IntN(len(begins))].prompt
		if i > 4 && r.IntN(2) == 0 {
			from = list[r.IntN(i)].prompt
		}
		list[i] = calls(r, 1, vocab, 12)[0]
		list[i].prompt = slices.Concat(from[:len(from)-r.IntN(min(3, len(from)))], list[i].prompt)
		list[i].prompt = list[i].prompt[:min(len(list[i].prompt), 60)]
	}
	return list
}

// TestPrefixCache: generations with a cache, large or so small that it evicts all the
// time, one by one and many at once, are those without, on every golden and on several
// ranks; and a cache that large has hits.
func TestPrefixCache(t *testing.T) {
	for _, dir := range goldens.Folders(t, ".") {
		ranks := 1 + len(filepath.Base(dir))%3
		for _, ranks := range []int{ranks, ranks%3 + 1, (ranks+1)%3 + 1} {
			if ranks != 1+len(filepath.Base(dir))%3 && !goldens.All() {
				continue // one of the three
			}
			t.Run(fmt.Sprintf("%s/tp=%d", filepath.Base(dir), ranks), func(t *testing.T) {
				t.Parallel()
				plain := openModel(t, dir, Options{Slots: 4, Sharding: Sharding{Ranks: ranks}})
				list := sharing(rand.New(rand.NewPCG(9, uint64(ranks))), 24, plain.Vocab())
				want := atOnce(t, plain, list)
				costs := prefixModel(plain.graph, plain.engine)
				for _, bytes := range []int64{1 << 40, costs.Bytes(90, true) * 3} {
					m := openModel(t, dir, Options{Slots: 4, Sharding: Sharding{Ranks: ranks}, PrefixCache: bytes})
					cached := 0
					for i, c := range list {
						g, err := m.GenerateIDs(t.Context(), c.prompt, c.o)
						if err != nil || !slices.Equal(g.IDs, want[i]) {
							t.Fatalf("%d bytes, generation %d, of which %d tokens were cached: %+v, %v, without %v", bytes, i, g.CachedTokens, g, err, want[i])
						}
						cached += g.CachedTokens
					}
					s := m.PrefixCache()
					if int64(cached) != s.HitTokens || s.Requests != len(list) || s.Failures > 0 || s.Bytes > bytes ||
						bytes == 1<<40 && (s.Hits < 8 || s.Evictions > 0) || bytes < 1<<40 && s.Evictions == 0 {
						t.Errorf("%d bytes: %d cached tokens, %+v", bytes, cached, s)
					}
					if got := atOnce(t, m, list); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
						t.Errorf("%d bytes, at once: %v, want %v", bytes, got, want)
					}
				}
			})
		}
	}
}

// TestKept: a sequence goes on from what was kept of another, states and rows in parts, to
// the last bit.
func TestKept(t *testing.T) {
	for _, name := range []string{"mamba-a", "mamba2-g1", "jamba", "zamba2"} {
		for ranks := 1; ranks <= 3; ranks++ {
			m := openModel(t, "testdata/golden/"+name, Options{Slots: 3, Sharding: Sharding{Ranks: ranks}})
			e, ids := m.engine, randomIDs(70, m.Vocab())
			one, two := sequence(t, m), sequence(t, m)
			stepped(t, one, ids...)
			states, err := e.KeepStates(one.slot)
			if err != nil {
				t.Fatal(err)
			}
			var rows []*exec.KeptRows
			for _, cut := range [][2]int{{0, 0}, {0, 33}, {33, 34}, {34, 70}} {
				r, err := e.KeepRows(one.slot, cut[0], cut[1])
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, r)
			}
			a, b := rows[3].Split(50)
			parts := []*exec.KeptRows{rows[0], rows[1].Join(rows[2]), a, b}
			held := states.Bytes()
			for _, r := range parts {
				held += r.Bytes()
			}
			if want := e.StateBytes() + 70*e.RowBytes(); held != want {
				t.Errorf("%s on %d ranks: %d bytes are kept, want %d", name, ranks, held, want)
			}
			want := snapshot(t, one)
			stepped(t, one, 5, 6, 7) // changes nothing of what was kept
			stepped(t, two, ids[:9]...)
			for range 2 {
				if err := e.Put(two.slot, states, parts...); err != nil {
					t.Fatal(err)
				}
				sameSnapshot(t, name, snapshot(t, two), want)
				stepped(t, two, 5, 6, 7)
				sameSnapshot(t, name, snapshot(t, two), snapshot(t, one))
			}
		}
	}
}

// TestPrefixCacheRefuses, and capacities that hold nothing.
func TestPrefixCacheRefuses(t *testing.T) {
	if _, err := Embedded(Options{PrefixCache: -1}); err == nil || !strings.Contains(err.Error(), "PrefixCache: a capacity of -1 bytes") {
		t.Error(err)
	}
	m := openModel(t, "testdata/golden/jamba", Options{PrefixCache: 1})
	for range 3 {
		if g, err := m.GenerateIDs(t.Context(), []int{1, 2, 3, 4}, Generate{MaxTokens: 3}); err != nil || g.CachedTokens != 0 {
			t.Errorf("%+v, %v", g, err)
		}
	}
	if s := m.PrefixCache(); s.Bytes != 0 || s.States != 0 || s.Requests != 3 {
		t.Errorf("%+v", s)
	}
}

// TestPrefixCacheLaws: a prefix is reused the third time, and a conversation's second turn
// at once; one that was cancelled leaves nothing.
func TestPrefixCacheLaws(t *testing.T) {
	m := openModel(t, "testdata/golden/jamba", Options{PrefixCache: 1 << 30})
	begin := randomIDs(40, m.Vocab())
	o := Generate{MaxTokens: 5, IgnoreEOS: true}
	ask := func(prompt ...int) *Generation {
		t.Helper()
		g, err := m.GenerateIDs(t.Context(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	with := func(last int) []int { return append(slices.Clone(begin), last, last, last) }
	ctx, cancel := context.WithCancel(t.Context())
	endless := Generate{MaxTokens: 1 << 30, IgnoreEOS: true, OnToken: func(int) { cancel() }}
	if _, err := m.GenerateIDs(ctx, with(9), endless); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if s := m.PrefixCache(); s.Bytes != 0 {
		t.Errorf("cancelled, and left %+v", s)
	}
	for i, want := range []int{0, 0, 40, 40} {
		if g := ask(with(i)...); g.CachedTokens != want {
			t.Errorf("time %d: %d tokens were cached, want %d", i, g.CachedTokens, want)
		}
	}
	turn := ask(with(1)...) // of which all but the last was fed
	next := slices.Concat(with(1), turn.IDs, []int{3, 4})
	if g := ask(next...); g.CachedTokens != 43+4 {
		t.Errorf("the second turn: %d tokens were cached, want 47", g.CachedTokens)
	}
}

// TestPrefixModel: FLOPs and bytes as the graph and the engine say.
func TestPrefixModel(t *testing.T) {
	for _, name := range []string{"mamba-a", "jamba"} {
		m := openModel(t, "testdata/golden/"+name, Options{Sharding: Sharding{Ranks: 2}})
		c := prefixModel(m.graph, m.engine)
		if (c.FLOPsPerTokenSquared > 0) != (name == "jamba") || (c.CacheBytes > 0) != (name == "jamba") || c.FLOPsPerToken <= 0 || c.StateBytes <= 0 || c.Check() != nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
