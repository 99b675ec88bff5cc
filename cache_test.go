package krait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
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
				list := sharing(rand.New(rand.NewPCG(9, uint64(ranks))), 16, plain.Vocab())
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
						bytes == 1<<40 && (s.Hits < 5 || s.Evictions > 0) || bytes < 1<<40 && s.Evictions == 0 {
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

// flaky is the CPU, on which a step now and then fails when it has run.
type flaky struct {
	exec.Device
	every int
}

// flakyMachine counts steps.
type flakyMachine struct {
	exec.Machine
	steps, every int
}

var errFlaky = errors.New("planted")

func (f *flaky) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	m, err := f.Device.Open(local, world, o)
	return &flakyMachine{m, 0, f.every}, err
}

func (f *flakyMachine) Step(ctx context.Context, w *exec.Work) ([]kernels.Tensor, error) {
	out, err := f.Machine.Step(ctx, w)
	if f.steps++; f.steps%f.every == 0 {
		return nil, errFlaky
	}
	return out, err
}

// TestPrefixCacheUnderway: 300 generations, 16 at a time, that share much, with a cache
// that evicts all the time, of which some are cancelled and some are in steps that fail:
// each gives what it gives alone without a cache, or the beginning of it.
func TestPrefixCacheUnderway(t *testing.T) {
	for i, name := range []string{"mamba-a", "jamba", "mamba2-g1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, o := "testdata/golden/"+name, Options{Slots: 16, Sharding: Sharding{Ranks: 1 + i}}
			plain := openModel(t, dir, o)
			list := sharing(rand.New(rand.NewPCG(10, uint64(i))), 100, plain.Vocab())
			want := atOnce(t, plain, list)
			o.PrefixCache = prefixModel(plain.graph, plain.engine).Bytes(90, true) * 6
			o.Device = &flaky{&cpu.Device{}, 9}
			m := openModel(t, dir, o)
			next := make(chan int, len(list))
			for k := range list {
				next <- k
			}
			close(next)
			var failed atomic.Int32
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for k := range next {
						if underway(t, m, list[k], want[k], k) {
							failed.Add(1)
						}
					}
				})
			}
			all.Wait()
			s := m.PrefixCache()
			if failed.Load() == 0 || s.Hits == 0 || s.Evictions == 0 || s.Failures > 0 || s.Bytes > o.PrefixCache {
				t.Errorf("%d failed, %+v", failed.Load(), s)
			}
			for range 16 {
				sequence(t, m) // no slot is lost
			}
		})
	}
}

// underway runs one of them, and reports whether it was in a step that failed.
func underway(t *testing.T, m *Model, c call, want []int, k int) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	c.o.OnToken = func(int) {
		if n++; k%7 == n {
			cancel()
		}
	}
	g, err := m.GenerateIDs(ctx, c.prompt, c.o)
	stopped := errors.Is(err, context.Canceled) && k%7 == n && n > 0
	if err != nil && !errors.Is(err, errFlaky) && !stopped || len(g.IDs) > len(want) || !slices.Equal(g.IDs, want[:len(g.IDs)]) || err == nil && len(g.IDs) < len(want) {
		t.Errorf("generation %d, %d tokens cached: %v, %v; alone %v", k, g.CachedTokens, g.IDs, err, want)
	}
	return errors.Is(err, errFlaky)
}

// TestPrefixCacheCUDA: a simulated GPU's states and rows are kept, too.
func TestPrefixCacheCUDA(t *testing.T) {
	for _, name := range []string{"mamba-a", "jamba"} {
		m := openModel(t, "testdata/golden/"+name, Options{Slots: 2, PrefixCache: 1 << 30, Device: &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}})
		prompt, o := randomIDs(12, m.Vocab()), Generate{MaxTokens: 4, IgnoreEOS: true}
		first, err := m.GenerateIDs(t.Context(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := m.GenerateIDs(t.Context(), slices.Concat(prompt, first.IDs), Generate{MaxTokens: 4, IgnoreEOS: true})
		if err != nil || again.CachedTokens != len(prompt)+3 {
			t.Fatalf("%s: %+v, %v", name, again, err)
		}
		o.MaxTokens = 8
		if whole, err := openModel(t, "testdata/golden/"+name, Options{}).GenerateIDs(t.Context(), prompt, o); err != nil || !slices.Equal(whole.IDs, slices.Concat(first.IDs, again.IDs)) {
			t.Errorf("%s: %v and %v, on the CPU %v, %v", name, first.IDs, again.IDs, whole.IDs, err)
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
				states, parts = throughHost(t, e, states, parts)
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

// throughHost brings what is kept to the host, gives it back, and brings it again.
func throughHost(t *testing.T, e *exec.Engine, states *exec.KeptStates, parts []*exec.KeptRows) (*exec.KeptStates, []*exec.KeptRows) {
	t.Helper()
	host, err := e.SaveStates(states)
	if err != nil {
		t.Fatal(err)
	}
	states.Free()
	if states, err = e.LoadStates(host); err != nil {
		t.Fatal(err)
	}
	var out []*exec.KeptRows
	for _, r := range parts {
		host, err := e.SaveRows(r)
		if err != nil {
			t.Fatal(err)
		}
		r.Free()
		if r, err = e.LoadRows(host); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	for i := range host.Data {
		host.Data[i] = host.Data[i][1:]
		if _, err := e.LoadStates(host); err == nil {
			t.Error("states of a byte less are loaded")
		}
	}
	return states, out
}
