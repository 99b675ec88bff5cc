package cache_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/prefix"
)

// fake is an engine that knows of each slot how many tokens it has, and keeps nothing.
type fake struct {
	t  *testing.T
	at map[int]int // tokens, by slot

	copies func() // is called for each to the host; nil: nothing is
}

func (f *fake) CopyState(slot int) (*state.DeviceState, error) {
	return &state.DeviceState{Tokens: f.at[slot]}, nil
}

func (f *fake) ShareKV(slot, from, to int) (*state.DeviceKV, error) {
	if from < 0 || from > to || to > f.at[slot] {
		f.t.Errorf("rows %d to %d of a sequence of %d", from, to, f.at[slot])
	}
	return &state.DeviceKV{From: from, To: to}, nil
}

func (f *fake) Resume(slot int, s *state.DeviceState, rows ...*state.DeviceKV) error {
	at := 0
	for _, r := range rows {
		if r.From != at {
			f.t.Errorf("rows from %d after those to %d", r.From, at)
		}
		at = r.To
	}
	if s != nil && s.Tokens != at {
		f.t.Errorf("states after %d tokens with rows of %d", s.Tokens, at)
	}
	f.at[slot] = at
	return nil
}

func (f *fake) Reset(slot int) error {
	f.at[slot] = 0
	return nil
}

func (f *fake) OffloadState(s *state.DeviceState) (*state.HostState, error) {
	if f.copies != nil {
		f.copies()
	}
	return &state.HostState{Tokens: s.Tokens}, nil
}

func (f *fake) OffloadKV(r *state.DeviceKV) (*state.HostKV, error) {
	return &state.HostKV{From: r.From, To: r.To}, nil
}

func (f *fake) LoadState(s *state.HostState) (*state.DeviceState, error) {
	return &state.DeviceState{Tokens: s.Tokens}, nil
}

func (f *fake) LoadKV(r *state.HostKV) (*state.DeviceKV, error) {
	return &state.DeviceKV{From: r.From, To: r.To}, nil
}

// replay is a cache over a fake engine that is given requests one after the other.
type replay struct {
	*fake
	*cache.Cache
	now float64
}

func newReplay(t *testing.T, o cache.Options) *replay {
	r := &replay{fake: &fake{t: t, at: map[int]int{}}}
	o.Now = func() float64 { return r.now }
	var err error
	if r.Cache, err = cache.New(r.fake, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// serve runs a request, and returns what it hits.
func (r *replay) serve(q prefix.Request) int {
	hit := r.begin(q)
	r.finish(q)
	return hit
}

const slot = 7

func idsOf(q prefix.Request) []int {
	ids := make([]int, q.Tokens.Len())
	for i := range ids {
		ids[i] = int(q.Tokens.At(i))
	}
	return ids
}

// begin prefills the prompt of a request, and returns its hit.
func (r *replay) begin(q prefix.Request) int {
	r.now = max(r.now, q.At)
	r.at[slot] = 0
	hit, mark, err := r.Begin(slot, "", idsOf(q)[:q.InputLen], nil, nil)
	if err != nil || r.at[slot] != hit {
		r.t.Fatalf("hit %d, the slot has %d: %v", hit, r.at[slot], err)
	}
	for mark > 0 {
		if mark <= r.at[slot] || mark >= q.InputLen {
			r.t.Fatalf("a prompt of %d tokens: mark %d after %d", q.InputLen, mark, r.at[slot])
		}
		r.at[slot] = mark
		mark = r.Keep(slot)
	}
	return hit
}

// finish ends a request.
func (r *replay) finish(q prefix.Request) {
	r.at[slot] = q.Tokens.Len()
	r.End(slot, idsOf(q), false)
}

// golden reads a trace, and for which model and capacity it is.
func golden(t *testing.T, name string) (m prefix.Model, capacity int64, trace []prefix.Request) {
	t.Helper()
	var about struct {
		Model    prefix.Model
		Capacity int64
	}
	path := "../../testdata/golden/cache/" + name
	data, err := os.ReadFile(path + ".json")
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	f, e := os.Open(path + ".jsonl")
	if err != nil || e != nil {
		t.Fatal(err, e)
	}
	defer f.Close()
	if trace, err = prefix.ReadTrace(f); err != nil {
		t.Fatal(err)
	}
	return about.Model, about.Capacity, trace
}

// TestLiveIsOffline: a cache that is given a trace, one request after the other, hits and evicts
// what simulate cache says, and chooses the same α. Texts of the edges are shorter than a live
// cache's grain.
func TestLiveIsOffline(t *testing.T) {
	chosen := map[float64]bool{}
	for _, c := range []struct {
		name  string
		grain int
	}{
		{"docs-hybrid", prefix.Grain}, {"fewshot-ssm", prefix.Grain}, {"chat-attention", prefix.Grain}, {"chat-hybrid", 1},
		{"edges-small", 1}, {"edges-attention", 3}, {"edges-hybrid", 1}, {"edges-hybrid", 3},
	} {
		name := fmt.Sprintf("%s/grain=%d", c.name, c.grain)
		m, capacity, trace := golden(t, c.name)
		m.Grain = c.grain
		for _, policy := range []string{"lru", "flop:2", "tuned", "reuse"} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				want, err := prefix.Replay(policy, m, capacity, trace)
				if err != nil {
					t.Fatal(err)
				}
				r := newReplay(t, cache.Options{Model: m, Capacity: capacity, Policy: policy})
				for i, q := range trace {
					if hit := r.serve(q); hit != want.Hits[i] {
						t.Fatalf("request %d hits %d tokens, offline %d", i, hit, want.Hits[i])
					}
				}
				s := r.Stats()
				if s.Evictions != want.Evictions || s.HitTokens != want.HitTokens || s.PromptTokens != want.InputTokens || want.Alpha != nil && s.Alpha != *want.Alpha ||
					policy == "flop:2" && s.Alpha != 2 {
					t.Errorf("%+v; offline %+v, α %v", s, want, want.Alpha)
				}
				chosen[s.Alpha] = true
			})
		}
	}
	if len(chosen) < 4 {
		t.Errorf("all α in use at the end: %v: the traces show little", chosen)
	}
}

// TestAttentionOnly: without limit, what is hit is the longest common prefix with anything
// before, less a token to compute.
func TestAttentionOnly(t *testing.T) {
	m, _, trace := golden(t, "chat-attention")
	r := newReplay(t, cache.Options{Model: m, Capacity: 1 << 50})
	var before []prefix.Request
	for i, q := range trace[:60] {
		longest := 0
		for _, b := range before {
			n := 0
			for n < min(q.InputLen-1, b.Tokens.Len()) && q.Tokens.At(n) == b.Tokens.At(n) {
				n++
			}
			longest = max(longest, n)
		}
		if hit := r.serve(q); hit != longest {
			t.Fatalf("request %d hits %d tokens of %d, want %d", i, hit, q.InputLen, longest)
		}
		before = append(before, q)
	}
	if s := r.Stats(); s.States != 0 || s.Hits == 0 || s.Failures > 0 {
		t.Errorf("%+v", s)
	}
}
