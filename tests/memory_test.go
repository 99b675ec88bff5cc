package tests

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// Of package session: copies of pages, bytes per token of a request, snapshots of paused requests.
const movedPages, requestBytes, snapshotsPerSlot = 2, 128, 2

// TestMemoryPlan: a plan counts what ranks take of the device that they share, or of their own, and
// gives the rest to pages, to the byte: with a byte less there is room for a page less.
func TestMemoryPlan(t *testing.T) {
	gpus := func(n int) exec.Device {
		return &cuda.Device{Driver: sim.New(sim.Options{Devices: n, NoBLAS: true, Memory: 1 << 30})}
	}
	for name, c := range map[string]struct {
		o     krait.Options
		share int // ranks of a device
	}{
		"one":       {krait.Options{Slots: 3, PageTokens: 16}, 1},
		"shared":    {krait.Options{Slots: 3, PageTokens: 16, Sharding: krait.Sharding{Ranks: 3}}, 3},
		"its own":   {krait.Options{Slots: 3, PageTokens: 16, Sharding: krait.Sharding{Ranks: 3}, Device: gpus(3)}, 1},
		"one GPU":   {krait.Options{Slots: 3, PageTokens: 16, Sharding: krait.Sharding{Ranks: 3}, Device: gpus(1)}, 3},
		"small":     {krait.Options{Slots: 2, MaxTokensPerStep: 65, Sharding: krait.Sharding{States: "conv=bf16,ssm=bf16"}}, 1},
		"context":   {krait.Options{Slots: 2, PageTokens: 16, Context: 50}, 1},
		"a page":    {krait.Options{Slots: 2, Context: 7}, 1},
		"all of it": {krait.Options{Slots: 2, Memory: session.AllMemory}, 1},
	} {
		if (name == "shared" || name == "its own" || name == "context") && goldens.Few(t) {
			continue // others have their features
		}
		o := c.o
		if o.Memory == 0 {
			o.Memory = 32 << 20
		}
		open := func() (*krait.Model, error) { return krait.Open("../testdata/golden/jamba", o) }
		m, err := open()
		if err != nil {
			t.Fatal(name, err)
		}
		p := m.MemoryPlan()
		s := m.Engine().Schedules()
		plan, err := lowering.NewPlan(s)
		if err != nil {
			t.Fatal(err)
		}
		tokens := 512 + int64(o.Slots) - 1
		if o.MaxTokensPerStep > 0 {
			tokens = int64(o.MaxTokensPerStep)
		}
		worst, least := krait.MemoryPlan{}, 1<<31
		for first := 0; first < len(s); first += c.share {
			var sum krait.MemoryPlan
			for rank := first; rank < first+c.share; rank++ {
				r := &plan.Ranks[rank]
				sum.Weights += r.Weights + r.Constants
				sum.States += r.State * int64(o.Slots)
				sum.Activations += r.Arena.At(graph.Sizes{Tokens: tokens, Seqs: int64(o.Slots), Rows: tokens, Largest: tokens})
				_, page := s[rank].Page(p.PageTokens)
				sum.Page += page
			}
			if o.Device == nil {
				sum.States *= 1 + snapshotsPerSlot
			}
			most := slices.MaxFunc(plan.Ranks, func(a, b lowering.RankPlan) int { return cmp.Compare(a.State, b.State) })
			sum.States += int64(c.share) * (state.SlabBytes + most.State)
			if o.Device == nil {
				sum.Page += requestBytes * int64(p.PageTokens)
			}
			if n := int((o.Memory - (sum.Weights + sum.States + sum.Prefixes + sum.Activations)) / sum.Page); n < least {
				worst, least = sum, n
			}
		}
		if p.Weights != worst.Weights || p.States != worst.States || p.Page != worst.Page || p.Activations > worst.Activations || p.Activations < worst.Activations*9/10 || p.Prefixes != 0 {
			t.Errorf("%s: %+v, want %+v", name, p, worst)
		}
		m.Close()
		if o.Memory == session.AllMemory {
			if p.Memory < 1<<28 || p.Room < 1<<20 {
				t.Errorf("%s: %+v", name, p)
			}
			continue
		}
		each := 10 // pages in all
		if o.Context > 0 {
			each = (o.Context + p.PageTokens - 1) / p.PageTokens * o.Slots
		}
		o.Memory = (p.Weights + p.States + p.Prefixes + p.Activations) + p.Page*int64(each+movedPages*o.Slots)
		if m, err = open(); err != nil {
			t.Fatal(name, err)
		}
		if got := m.MemoryPlan(); got.Room != each*p.PageTokens {
			t.Errorf("%s: room for %d tokens, want %d pages of %d", name, got.Room, each, p.PageTokens)
		}
		m.Close()
		o.Memory--
		m, err = open()
		switch {
		case o.Context > 0:
			if err == nil || !strings.Contains(err.Error(), "a context of") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || m.MemoryPlan().Room != (each-1)*p.PageTokens:
			t.Errorf("%s: a byte less: %v", name, err)
		}
		if err == nil {
			m.Close()
		}
		for memory, want := range map[int64]string{(p.Weights + p.States + p.Prefixes + p.Activations) - 1: "does not fit", (p.Weights + p.States + p.Prefixes + p.Activations) + p.Page: "no room for a KV page", 1: "does not fit", -2: "must not be negative"} {
			if o.Memory = memory; o.Context > 0 && memory > (p.Weights+p.States+p.Prefixes+p.Activations) {
				want = "a context of"
			}
			if _, err := open(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %d bytes: %v, want %s", name, memory, err, want)
			}
		}
	}
}

// TestMemoryOfMamba: without attention there is room for any number of tokens, and what the prefix
// cache and slots take must fit.
func TestMemoryOfMamba(t *testing.T) {
	o := krait.Options{Memory: 64 << 20, PrefixCache: 1 << 20, PrefixCacheHost: 3 << 20}
	m := openModel(t, "../testdata/golden/mamba-a", o)
	p := m.MemoryPlan()
	if p.Room != 0 || p.Page != 0 || p.Prefixes < 4<<20 {
		t.Errorf("%+v", p)
	}
	o.Memory = (p.Weights + p.States + p.Prefixes + p.Activations)
	openModel(t, "../testdata/golden/mamba-a", o)
	o.Slots = 9
	if _, err := krait.Open("../testdata/golden/mamba-a", o); err == nil || !strings.Contains(err.Error(), "9 slots") {
		t.Error(err)
	}
}

// TestMemoryRoom: generations that all together need more pages than there is memory for wait for
// each other, and one that never fits is refused; a sequence that is stepped by itself takes what
// is left, and its error changes nothing.
func TestMemoryRoom(t *testing.T) {
	o := krait.Options{Slots: 4, PageTokens: 4, Memory: 32 << 20, PrefixCache: 1 << 20}
	p := openModel(t, "../testdata/golden/jamba", o).MemoryPlan()
	const pages = 12
	o.Memory = (p.Weights + p.States + p.Prefixes + p.Activations) + p.Page*int64(pages+movedPages*o.Slots)
	m := openModel(t, "../testdata/golden/jamba", o)
	alone := openModel(t, "../testdata/golden/jamba", krait.Options{})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			prompt := tokensOf(alone, 20+i, uint64(i%3))
			g, err := m.GenerateIDs(t.Context(), prompt, krait.Generate{MaxTokens: 9, IgnoreEOS: true})
			if err != nil {
				t.Error(err)
				return
			}
			want, err := alone.GenerateIDs(t.Context(), prompt, krait.Generate{MaxTokens: 9, IgnoreEOS: true})
			if err != nil || !slices.Equal(g.IDs, want.IDs) {
				t.Errorf("prompt %d: %v, alone %v, %v", i, g.IDs, want, err)
			}
		})
	}
	all.Wait()
	if u := m.Engine().PageUse(); u.Pages > pages+movedPages*o.Slots {
		t.Errorf("%+v", u)
	}
	if _, err := m.GenerateIDs(t.Context(), tokensOf(alone, 40, 1), krait.Generate{MaxTokens: 10}); err == nil || !strings.Contains(err.Error(), "the KV cache has room for 48") {
		t.Error(err)
	}
	s := sequence(t, m)
	if _, err := s.Step(t.Context(), tokensOf(alone, 60, 1)...); err != nil { // the cache gives way
		t.Error(err)
	}
	if _, err := s.Step(t.Context(), tokensOf(alone, 60, 2)...); err == nil || !strings.Contains(err.Error(), "the KV cache is full") {
		t.Error(err)
	}
	if _, err := s.Step(t.Context(), 1); err != nil {
		t.Error(err)
	}
	s.Close()
}

// TestMemoryElsewhere: prompts that come from elsewhere wait for room before they take pages, also
// beside a prefix cache that would have them all; one that is cancelled meanwhile leaves its place.
func TestMemoryElsewhere(t *testing.T) {
	const dir, pages = "../testdata/golden/jamba", 14
	_, address := serveModel(t, openModel(t, dir, krait.Options{PageTokens: 3}), transfer.ServerOptions{})
	o := krait.Options{Slots: 3, PageTokens: 4, Memory: 32 << 20, PrefixCache: 1 << 20}
	p := openModel(t, dir, o).MemoryPlan()
	o.Memory = (p.Weights + p.States + p.Prefixes + p.Activations) + p.Page*int64(pages+movedPages*o.Slots)
	m, alone := openModel(t, dir, o), openModel(t, dir, krait.Options{})
	from := prefillBy(t, m, prefill.Options{Address: address, Strict: true})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%5 == 4 {
				time.AfterFunc(time.Duration(i)*time.Millisecond, cancel)
			}
			prompt := tokensOf(alone, 20+i, uint64(i%3))
			g, err := m.GenerateIDs(ctx, prompt, krait.Generate{MaxTokens: 9, IgnoreEOS: true, Prefill: from})
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("prompt %d: %v", i, err)
				}
				return
			}
			want, err := alone.GenerateIDs(t.Context(), prompt, krait.Generate{MaxTokens: 9, IgnoreEOS: true})
			if err != nil || !slices.Equal(g.IDs, want.IDs) || g.Remote == nil {
				t.Errorf("prompt %d: %v, alone %v, %v", i, g.IDs, want, err)
			}
		})
	}
	all.Wait()
	if u := m.Engine().PageUse(); u.Pages > pages+movedPages*o.Slots {
		t.Errorf("%+v", u)
	}
}
