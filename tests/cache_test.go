package tests

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestKept: a sequence resumes from copies of another's state and KV cache in parts, to
// the last bit.
func TestKept(t *testing.T) {
	goldens.CI(t)
	for _, name := range []string{"mamba-a", "mamba2-g1", "jamba", "zamba2"} {
		for _, sharding := range []krait.Sharding{{Ranks: 1}, {Ranks: 2}, {Ranks: 3}, {Ranks: 3, Strategy: "context"}, {Ranks: 2, Prefill: "context"}} {
			m := openModel(t, "../testdata/golden/"+name, krait.Options{Slots: 3, Sharding: sharding})
			e, ids := m.Engine(), randomIDs(70, m.Vocab())
			one, two := sequence(t, m), sequence(t, m)
			stepped(t, one, ids...)
			states, err := e.CopyState(one.slot)
			if err != nil {
				t.Fatal(err)
			}
			var rows []*state.DeviceKV
			for _, cut := range [][2]int{{0, 0}, {0, 33}, {33, 34}, {34, 70}} {
				r, err := e.ShareKV(one.slot, cut[0], cut[1])
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, r)
			}
			a, b := rows[3].Split(50)
			parts := []*state.DeviceKV{rows[0], rows[1].Join(rows[2]), a, b}
			held := states.Bytes()
			for _, r := range parts {
				held += r.Bytes()
			}
			if want := e.StateBytes() + 70*e.KVBytes(); held != want {
				t.Errorf("%s by %+v: %d bytes are kept, want %d", name, sharding, held, want)
			}
			want := snapshot(t, one)
			stepped(t, one, 5, 6, 7) // changes nothing of what was kept
			stepped(t, two, ids[:9]...)
			for range 2 {
				if err := e.Resume(two.slot, states, parts...); err != nil {
					t.Fatal(err)
				}
				sameSnapshot(t, name, snapshot(t, two), want)
				stepped(t, two, 5, 6, 7)
				sameSnapshot(t, name, snapshot(t, two), snapshot(t, one))
				states, parts = throughHost(t, e, states, parts)
			}
		}
	}
}

// TestPrefixCacheRefuses, and capacities that hold nothing.
func TestPrefixCacheRefuses(t *testing.T) {
	if _, err := krait.Embedded(krait.Options{PrefixCache: -1}); err == nil || !strings.Contains(err.Error(), "PrefixCache: a capacity of -1 bytes") {
		t.Error(err)
	}
	m := openModel(t, "../testdata/golden/jamba", krait.Options{PrefixCache: 1})
	for range 3 {
		if g, err := m.GenerateIDs(t.Context(), []int{1, 2, 3, 4}, krait.Generate{MaxTokens: 3}); err != nil || g.CachedTokens != 0 {
			t.Errorf("%+v, %v", g, err)
		}
	}
	if s := m.Session().PrefixCache(); s.Bytes != 0 || s.States != 0 || s.Requests != 3 {
		t.Errorf("%+v", s)
	}
}

// TestPrefixCacheLaws: the second request with a prompt hits up to the last multiple of the grain
// below its end, and a prompt that shares a prefix hits that, down to the grain; a conversation's
// second turn hits all of the first; a cancelled request leaves nothing.
func TestPrefixCacheLaws(t *testing.T) {
	m := openModel(t, "../testdata/golden/jamba", krait.Options{PrefixCache: 1 << 30})
	begin := randomIDs(200, m.Vocab())
	o := krait.Generate{MaxTokens: 5, IgnoreEOS: true}
	ask := func(want int, prompt ...int) *krait.Generation {
		t.Helper()
		g, err := m.GenerateIDs(t.Context(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		if g.CachedTokens != want {
			t.Errorf("of %d tokens %d were cached, want %d", len(prompt), g.CachedTokens, want)
		}
		return g
	}
	ctx, cancel := context.WithCancel(t.Context())
	endless := krait.Generate{MaxTokens: 1 << 30, IgnoreEOS: true, OnToken: func(int, time.Time) { cancel() }}
	if _, err := m.GenerateIDs(ctx, begin, endless); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if s := m.Session().PrefixCache(); s.Bytes != 0 {
		t.Errorf("cancelled, and left %+v", s)
	}
	o.PromptLogProbs = true // which reads all of it, and leaves as much
	first := ask(0, begin...)
	o.PromptLogProbs = false
	again := ask(192, begin...)
	if !slices.Equal(again.IDs, first.IDs) {
		t.Errorf("%v the second time, %v the first", again.IDs, first.IDs)
	}
	for last, want := range []int{0, 128, 128} { // where they part a state is kept, at the grain
		ask(want, append(slices.Clone(begin[:150]), last, last, last)...)
	}
	next := slices.Concat(begin, first.IDs, []int{3, 4}) // of whose answer all but the last was fed
	ask(204, next...)
	ask(204, next...)
	for _, want := range []int{0, 64} {
		ask(0, begin[:64]...) // one token is always read
		ask(want, begin[:65]...)
	}
}

// throughHost brings what is kept to the host, gives it back, and brings it again.
func throughHost(t *testing.T, e *exec.Engine, states *state.DeviceState, parts []*state.DeviceKV) (*state.DeviceState, []*state.DeviceKV) {
	t.Helper()
	host, err := e.OffloadState(states)
	if err != nil {
		t.Fatal(err)
	}
	states.Free()
	if states, err = e.LoadState(host); err != nil {
		t.Fatal(err)
	}
	var out []*state.DeviceKV
	for _, r := range parts {
		host, err := e.OffloadKV(r)
		if err != nil {
			t.Fatal(err)
		}
		r.Free()
		if r, err = e.LoadKV(host); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	for i := range host.Data {
		host.Data[i] = host.Data[i][1:]
		if _, err := e.LoadState(host); err == nil {
			t.Error("states of a byte less are loaded")
		}
	}
	return states, out
}
