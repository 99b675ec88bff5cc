package tests

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// TestChoices: choices of a prompt that is prefilled once equal those of separate requests: for
// each kind of model, on ranks that share tokens, on a simulated GPU, and with a prefill server.
func TestChoices(t *testing.T) {
	for name, c := range map[string]struct {
		dir       string
		o         krait.Options
		elsewhere bool
	}{
		"mamba":     {"../testdata/golden/mamba-a", krait.Options{Slots: 2}, false},
		"attention": {"../testdata/golden/jamba", krait.Options{Slots: 2, PageTokens: 4, PrefixCache: 1 << 20}, false},
		"sequence":  {"../testdata/golden/zamba2", krait.Options{Slots: 3, Sharding: krait.Sharding{Ranks: 2, Strategy: "sequence"}}, false},
		"GPU":       {shallow(t, "mamba-a", 1), krait.Options{Slots: 2, Device: &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true}), BatchInvariant: true}}, false},
		"elsewhere": {"../testdata/golden/jamba", krait.Options{Slots: 2, PageTokens: 4}, true},
	} {
		if name == "GPU" && goldens.Few(t) {
			continue
		}
		m := openModel(t, c.dir, c.o)
		var from krait.Prefiller
		if c.elsewhere {
			_, address := serveModel(t, openModel(t, c.dir, krait.Options{}), transfer.ServerOptions{})
			from = prefillBy(t, m, prefill.Options{Address: address, Strict: true})
		}
		prompt := tokensOf(m, 40, 3)
		if name == "GPU" {
			prompt = prompt[:9]
		}
		var list []krait.Generate
		for i := range 4 {
			list = append(list, krait.Generate{MaxTokens: 3 + i, Temperature: 1, Seed: uint64(i), IgnoreEOS: true, LogProbs: true, Salt: "s", Prefill: from})
		}
		before := m.Session().Scheduler().Load().Tokens
		got := make([]*krait.Generation, len(list))
		err := m.GenerateChoices(t.Context(), prompt, list, func(i int, g *krait.Generation, err error) { got[i] = g })
		if err != nil {
			t.Fatal(name, err)
		}
		fed, want := int(m.Session().Scheduler().Load().Tokens-before), len(prompt)+2+3+4+5
		if c.elsewhere {
			want -= len(prompt) - 1
		}
		if fed != want {
			t.Errorf("%s: %d tokens were fed, want %d", name, fed, want)
		}
		for i, o := range list {
			o.Salt = "another"
			one, err := m.GenerateIDs(t.Context(), prompt, o)
			if err != nil {
				t.Fatal(name, err)
			}
			if !slices.Equal(got[i].IDs, one.IDs) || !slices.EqualFunc(got[i].LogProbs, one.LogProbs, func(a, b krait.LogProbs) bool { return a.Chosen == b.Chosen }) {
				t.Errorf("%s: choice %d is %v, alone %v", name, i, got[i].IDs, one.IDs)
			}
		}
		if l := m.Session().Scheduler().Load(); l.Waiting+l.Running > 0 || m.Session().PrefixCacheBytes() == 0 && m.Engine().PageUse().Free != m.Engine().PageUse().Pages {
			t.Errorf("%s: left: %+v, %+v", name, l, m.Engine().PageUse())
		}
	}
}

// TestChoicesStopped: where one choice fails, or who asked goes away, all end, and nothing stays
// taken.
func TestChoicesStopped(t *testing.T) {
	m := openModel(t, "../testdata/golden/jamba", krait.Options{Slots: 2, PageTokens: 4})
	prompt := tokensOf(m, 20, 3)
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	list := slices.Repeat([]krait.Generate{{MaxTokens: 1 << 20, IgnoreEOS: true}}, 5)
	list[1].OnToken = func(int, time.Time) { once.Do(cancel) }
	ended := 0
	var mu sync.Mutex
	err := m.GenerateChoices(ctx, prompt, list, func(_ int, _ *krait.Generation, err error) {
		mu.Lock()
		defer mu.Unlock()
		if ended++; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if !errors.Is(err, context.Canceled) || ended != len(list) {
		t.Errorf("%v, %d have ended", err, ended)
	}
	list[2].Tenant = "another"
	if err := m.GenerateChoices(t.Context(), prompt, list, nil); err == nil {
		t.Error("choices of two tenants")
	}
	if l, u := m.Session().Scheduler().Load(), m.Engine().PageUse(); l.Waiting+l.Running > 0 || u.Free != u.Pages {
		t.Errorf("left: %+v, %+v", l, u)
	}
}
