package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/prefix"
)

// bench is an engine with a cache, and what sequences have in it without.
type bench struct {
	t     testing.TB
	e     *exec.Engine
	cache *cache.Cache
	now   float64
	grain int
	host  int64 // bytes
	alone map[string]*state.Snapshot
}

func newBench(t *testing.T, ranks int) *bench {
	t.Helper()
	m, err := krait.Open("../../testdata/golden/jamba", krait.Options{Slots: 4, Sharding: krait.Sharding{Ranks: ranks}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &bench{t: t, e: m.Engine(), alone: map[string]*state.Snapshot{}}
}

// with makes the cache, of a number of states and rows, and host memory for a number of states.
func (b *bench) with(e cache.Engine, states, rows int64, policy string, host int64) {
	var err error
	b.host = host * b.e.StateBytes()
	b.cache, err = cache.New(e, cache.Options{
		Model:    prefix.Model{FLOPsPerToken: 10, FLOPsPerTokenSquared: 1, CacheBytes: b.e.KVBytes(), StateBytes: b.e.StateBytes(), Grain: b.grain},
		Capacity: states*b.e.StateBytes() + rows*b.e.KVBytes(), Policy: policy, Host: host * b.e.StateBytes(),
		Now: func() float64 { b.now++; return b.now },
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) alloc() int {
	slot, err := b.e.Alloc()
	if err != nil {
		b.t.Fatal(err)
	}
	return slot
}

func (b *bench) feed(slot int, ids []int) {
	if len(ids) == 0 {
		return
	}
	batch := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids, Rows: []int{}}}, Outputs: []string{}}
	if _, err := b.e.Step(context.Background(), &batch); err != nil {
		b.t.Fatal(err)
	}
}

// check holds what a slot has against a sequence that was fed the same without a cache.
func (b *bench) check(slot int, ids []int) {
	b.t.Helper()
	key := fmt.Sprint(ids)
	if b.alone[key] == nil {
		fresh := b.alloc()
		b.feed(fresh, ids)
		b.alone[key] = b.snapshot(fresh)
		b.e.Free(fresh)
	}
	got, want := b.snapshot(slot), b.alone[key]
	if got.Tokens != want.Tokens {
		b.t.Fatalf("%v: %d tokens", ids, got.Tokens)
	}
	for name, v := range want.States {
		if !slices.EqualFunc(got.States[name], v, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
			b.t.Fatalf("%v: state %s is another", ids, name)
		}
	}
}

func (b *bench) snapshot(slot int) *state.Snapshot {
	s, err := b.e.Snapshot(slot)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// begun is an active sequence.
type begun struct {
	slot   int
	prompt []int
}

// begin prefills a prompt, by the cache, up to its end.
func (b *bench) begin(prompt []int) begun {
	slot := b.alloc()
	at, mark, err := b.cache.Begin(slot, "", prompt, nil, nil)
	if err != nil || at >= len(prompt) {
		b.t.Fatalf("a prompt of %d tokens: hit %d, %v", len(prompt), at, err)
	}
	b.check(slot, prompt[:at])
	for mark > 0 {
		if mark <= at || mark >= len(prompt) {
			b.t.Fatalf("a prompt of %d tokens: mark %d after %d", len(prompt), mark, at)
		}
		b.feed(slot, prompt[at:mark])
		at, mark = mark, b.cache.Keep(slot)
	}
	b.feed(slot, prompt[at:])
	return begun{slot, prompt}
}

// end goes on for some tokens and ends.
func (b *bench) end(q begun, output []int, wasted bool) {
	for _, id := range output {
		b.feed(q.slot, []int{id})
	}
	b.cache.End(q.slot, slices.Concat(q.prompt, output), wasted)
	b.e.Free(q.slot)
	if held, counted := b.cache.Held(); held != counted {
		b.t.Fatalf("%d bytes are held, %d counted", held, counted)
	}
	if held, counted := b.cache.HostHeld(); held != counted || counted > b.host {
		b.t.Fatalf("%d bytes are held in the host's memory, %d counted", held, counted)
	}
}

// random runs sequences of few tokens, up to three at the same time.
func (b *bench) random(r *rand.Rand) {
	ids := func(n int) []int {
		list := make([]int, n)
		for i := range list {
			list[i] = 1 + r.IntN(2)
		}
		return list
	}
	var under []begun
	var said [][]int
	for range 25 {
		if len(under) < 3 && r.IntN(3) > 0 {
			prompt := ids(1 + r.IntN(9))
			if len(said) > 0 && r.IntN(2) == 0 { // a turn more
				prompt = slices.Concat(said[r.IntN(len(said))], prompt[:1+len(prompt)/4])
			}
			under = append(under, b.begin(prompt))
		} else if len(under) > 0 {
			i, output := r.IntN(len(under)), ids(r.IntN(5))
			said = append(said, slices.Concat(under[i].prompt, output))
			b.end(under[i], output, r.IntN(6) == 0)
			under = slices.Delete(under, i, i+1)
		}
	}
	for _, q := range under {
		b.end(q, nil, false)
	}
}

// TestCache runs random sequences of few tokens, so that they share much, through caches
// of all sizes, some at the same time, some for nothing: what a sequence begins with is,
// to the last bit, what it would have computed; what is held is what is counted, and there is
// nothing else that was kept and not freed.
func TestCache(t *testing.T) {
	seed := prop.Seed(t)
	hits, back, evictions, caches := 0, 0, 0, 12
	if goldens.Few(t) {
		caches = 4
	}
	for ranks := 1; ranks <= 3; ranks++ {
		b := newBench(t, ranks)
		r := rand.New(rand.NewPCG(seed, uint64(ranks)))
		for range caches {
			kept := &keeping{Engine: b.e}
			b.grain = 1 + r.IntN(4)
			b.with(kept, r.Int64N(7), r.Int64N(40)+1, []string{"lru", "flop:1", "reuse"}[r.IntN(3)], max(0, r.Int64N(10)-3))
			capacity := b.cache.Stats().Bytes
			b.random(r)
			s := b.cache.Stats()
			if b.cache.Under() > 0 || s.Failures > 0 || capacity != 0 {
				t.Fatalf("%d sequences are still known; %+v", b.cache.Under(), s)
			}
			if n := kept.live(); n != s.States {
				t.Fatalf("%d states are held, and %d were not freed", s.States, n)
			}
			b.cache.Close()
			if p := b.e.PageUse(); kept.live() > 0 || p.Free != p.Pages {
				t.Fatalf("the cache is closed, and %d states were not freed, %d of %d pages", kept.live(), p.Pages-p.Free, p.Pages)
			}
			hits, back, evictions = hits+s.Hits, back+s.HostHits, evictions+s.Evictions
		}
	}
	if hits < 4*caches || back < caches || evictions < 4*caches {
		t.Errorf("%d hits, %d from the host, and %d evictions: too few to say much", hits, back, evictions)
	}
}

// keeping is an engine that knows which states it gave.
type keeping struct {
	*exec.Engine
	states []*state.DeviceState
}

func (k *keeping) CopyState(slot int) (*state.DeviceState, error) {
	s, err := k.Engine.CopyState(slot)
	if err == nil {
		k.states = append(k.states, s)
	}
	return s, err
}

func (k *keeping) LoadState(h *state.HostState) (*state.DeviceState, error) {
	s, err := k.Engine.LoadState(h)
	if err == nil {
		k.states = append(k.states, s)
	}
	return s, err
}

// live is how many of them were not freed.
func (k *keeping) live() (n int) {
	for _, s := range k.states {
		if s.Bytes() > 0 {
			n++
		}
	}
	return n
}

// failing is an engine whose copies fail after some.
type failing struct {
	*exec.Engine
	left int
}

var errPlanted = errors.New("planted")

func (f *failing) fails() bool { f.left--; return f.left < 0 }

func (f *failing) CopyState(slot int) (*state.DeviceState, error) {
	if f.fails() {
		return nil, errPlanted
	}
	return f.Engine.CopyState(slot)
}

func (f *failing) ShareKV(slot, from, to int) (*state.DeviceKV, error) {
	if f.fails() {
		return nil, errPlanted
	}
	return f.Engine.ShareKV(slot, from, to)
}

func (f *failing) Resume(slot int, s *state.DeviceState, rows ...*state.DeviceKV) error {
	err := f.Engine.Resume(slot, s, rows...)
	if f.fails() {
		return errPlanted
	}
	return err
}

func (f *failing) OffloadState(s *state.DeviceState) (*state.HostState, error) {
	if f.fails() {
		return nil, errPlanted
	}
	return f.Engine.OffloadState(s)
}

func (f *failing) OffloadKV(r *state.DeviceKV) (*state.HostKV, error) {
	if f.fails() {
		return nil, errPlanted
	}
	return f.Engine.OffloadKV(r)
}

func (f *failing) LoadState(s *state.HostState) (*state.DeviceState, error) {
	if f.fails() {
		return nil, errPlanted
	}
	return f.Engine.LoadState(s)
}

func (f *failing) LoadKV(r *state.HostKV) (*state.DeviceKV, error) {
	if f.fails() {
		return nil, errPlanted
	}
	return f.Engine.LoadKV(r)
}

// TestCacheFails lets each copy fail in turn: the sequence ends well, what is left in the
// cache is right, and the failure is counted.
func TestCacheFails(t *testing.T) {
	b := newBench(t, 2)
	for after := range 16 {
		f := &failing{b.e, after}
		b.with(f, 100, 100, "lru", 0)
		for _, prompt := range [][]int{{1, 2, 3, 4, 5}, {1, 2, 3, 9}, {1, 2, 3, 8}, {1, 2, 7, 8}} {
			b.end(b.begin(prompt), []int{4, 4}, false)
			f.left += 2 // so that some go on
		}
		if s := b.cache.Stats(); after < 3 && s.Failures == 0 || b.cache.Under() > 0 {
			t.Errorf("after %d copies: %+v", after, s)
		}
	}
}

// planting is an engine that does one thing wrong now and then.
type planting struct {
	*exec.Engine
	what   string
	n      int
	states *state.HostState // that were kept last
	rows   *state.HostKV
}

const (
	nothing     = "nothing"
	staleStates = "states of another sequence"
	staleRows   = "rows of another sequence"
	earlyStates = "states that are freed early"
	earlyRows   = "rows that are freed early"
	freedTwice  = "states that are freed twice"
)

func (p *planting) CopyState(slot int) (*state.DeviceState, error) {
	s, err := p.Engine.CopyState(slot)
	if err != nil {
		return nil, err
	}
	last := p.states
	if p.states, err = p.Engine.OffloadState(s); err != nil {
		return nil, err
	}
	if p.n++; p.n%3 != 0 {
		return s, nil
	}
	switch p.what {
	case earlyStates, freedTwice:
		s.Free()
		if p.what == freedTwice {
			s.Free()
		}
	case staleStates:
		s.Free()
		return p.Engine.LoadState(&state.HostState{Tokens: p.states.Tokens, Data: last.Data})
	}
	return s, nil
}

func (p *planting) ShareKV(slot, from, to int) (*state.DeviceKV, error) {
	r, err := p.Engine.ShareKV(slot, from, to)
	if err != nil {
		return nil, err
	}
	last := p.rows
	if p.rows, err = p.Engine.OffloadKV(r); err != nil {
		return nil, err
	}
	switch {
	case p.what == earlyRows:
		r.Free()
	case p.what == staleRows && last != nil && last.To-last.From >= to-from:
		r.Free()
		stale := &state.HostKV{From: from, To: to}
		for i, d := range last.Data {
			stale.Data = append(stale.Data, d[:len(p.rows.Data[i])])
		}
		return p.Engine.LoadKV(stale)
	}
	return r, nil
}

// trap is a test that goes no further where it fails, and does not fail.
type trap struct{ testing.TB }

func (t trap) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// TestPlanted: what is held in the wrong way, or too short, is seen by what TestCache
// looks at, or by the engine, which panics.
func TestPlanted(t *testing.T) {
	for _, what := range []string{nothing, staleStates, staleRows, earlyStates, earlyRows, freedTwice} {
		for ranks := 1; ranks <= 2; ranks++ {
			b := newBench(t, ranks)
			b.t = trap{t}
			said := func() (said any) {
				defer func() { said = recover() }()
				r := rand.New(rand.NewPCG(1, uint64(ranks)))
				for range 4 {
					b.with(&planting{Engine: b.e, what: what}, 6, 40, "lru", 0)
					b.random(r)
				}
				return nil
			}()
			if (said != nil) != (what != nothing) {
				t.Errorf("%s, on %d ranks: %v", what, ranks, said)
			}
			t.Logf("%s, on %d ranks: %v", what, ranks, said)
		}
	}
}

// TestHostFails is the same with the host's memory behind a small cache: each of many
// copies fails in turn.
func TestHostFails(t *testing.T) {
	b := newBench(t, 2)
	failures, back := 0, 0
	for after := range 48 {
		f := &failing{b.e, after}
		b.with(f, 2, 0, "lru", 100)
		for _, prompt := range [][]int{{1, 2, 3, 4, 5}, {1, 2, 3, 9}, {1, 2, 3, 8}, {7, 7, 8}, {1, 2, 3, 4, 5, 4, 4, 6}, {1, 2, 3, 7}, {1, 2, 3, 4, 5, 4, 4, 6, 4, 4, 9}} {
			b.end(b.begin(prompt), []int{4, 4}, false)
			if f.left < 0 {
				f.left = 1000 // one in all
			}
		}
		s := b.cache.Stats()
		failures, back = failures+s.Failures, back+s.HostHits
		if b.cache.Under() > 0 || s.Failures > 2 {
			t.Errorf("after %d copies: %+v", after, s)
		}
	}
	if failures < 10 || back < 10 {
		t.Errorf("%d failures, %d hits of the host", failures, back)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []cache.Options{
		{Capacity: 1, Model: prefix.Model{}}, {Capacity: 1, Model: prefix.Model{StateBytes: 1}, Policy: "none"}, {Capacity: 1, Model: prefix.Model{StateBytes: 1}, Policy: "blocks32"},
		{Capacity: 1, Model: prefix.Model{StateBytes: 1}, Host: -1}, {Capacity: 0, Model: prefix.Model{StateBytes: 1}},
		{Capacity: 1, Model: prefix.Model{StateBytes: -1}}, {Capacity: math.MaxInt64, Model: prefix.Model{StateBytes: 1}},
	} {
		if _, err := cache.New(nil, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
