package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// call is a generation that a test asks for.
type call struct {
	prompt []int
	o      krait.Generate
}

// calls are generations at random: greedy or not, with prompts that are cut and some that are not.
func calls(r *rand.Rand, n, vocab, longest int) []call {
	list := make([]call, n)
	for i := range list {
		c := &list[i]
		c.prompt = make([]int, 1+r.IntN(longest))
		for j := range c.prompt {
			c.prompt[j] = r.IntN(vocab)
		}
		c.o = krait.Generate{MaxTokens: 1 + r.IntN(8), IgnoreEOS: true, Seed: r.Uint64(), Temperature: float64(r.IntN(3)), RepetitionPenalty: 1 + r.Float64()}
		if r.IntN(2) == 0 { // chosen on the host
			c.o.MinP, c.o.PresencePenalty, c.o.LogitBias = 0.2*r.Float64(), r.Float64(), map[int]float64{r.IntN(vocab): 4}
		}
		c.o.LogProbs = r.IntN(3) == 0
	}
	return list
}

// atOnce runs generations from as many goroutines.
func atOnce(t *testing.T, m *krait.Model, list []call) [][]int {
	t.Helper()
	out := make([][]int, len(list))
	var all sync.WaitGroup
	for i, c := range list {
		all.Go(func() {
			g, err := m.GenerateIDs(context.Background(), c.prompt, c.o)
			if err != nil {
				t.Error(err)
				return
			}
			out[i] = g.IDs
		})
	}
	all.Wait()
	return out
}

// TestRequestsOfModels: generations from many goroutines, more than there are slots, on
// every golden, are those that are generated one after another.
func TestRequestsOfModels(t *testing.T) {
	for k, dir := range covering.Drawn(t, goldens.Folders(t, "..")) {
		_, g, err := checkpoint.Describe(dir)
		if err != nil {
			t.Fatal(err)
		}
		states := "conv=bf16"
		if slices.ContainsFunc(g.Leaves("state"), func(n *graph.Node) bool { return strings.HasSuffix(n.Name(), ".ssm") }) {
			states += ",ssm=bf16"
		}
		for i, o := range []krait.Options{
			{Slots: 3, MaxTokensPerStep: 66},
			{Slots: 2, MaxTokensPerStep: 65, Sharding: krait.Sharding{Ranks: 3}},
			{Slots: 3, MaxTokensPerStep: 98, Sharding: krait.Sharding{Ranks: 2, States: states}},
		} {
			if i != k%3 && !goldens.All() {
				continue // each of these for some
			}
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(dir), i), func(t *testing.T) {
				t.Parallel()
				m := openModel(t, dir, o)
				list := calls(rand.New(rand.NewPCG(1, uint64(i))), 7, m.Vocab(), 90)
				got := atOnce(t, m, list)
				for i, c := range list {
					if g, err := m.GenerateIDs(t.Context(), c.prompt, c.o); err != nil || !slices.Equal(g.IDs, got[i]) {
						t.Errorf("a prompt of %d tokens, %+v: %v in company, alone %+v, %v", len(c.prompt), c.o, got[i], g, err)
					}
				}
			})
		}
	}
}

// TestRequestsCUDA is the same on a simulated GPU.
func TestRequestsCUDA(t *testing.T) {
	goldens.CI(t)
	m := openModel(t, "../testdata/golden/mamba2-g1", krait.Options{Slots: 2, Device: &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}})
	list := calls(rand.New(rand.NewPCG(2, 2)), 4, m.Vocab(), 12)
	got := atOnce(t, m, list)
	for i, c := range list {
		if g, err := m.GenerateIDs(t.Context(), c.prompt, c.o); err != nil || !slices.Equal(g.IDs, got[i]) {
			t.Errorf("%+v: %v in company, alone %+v, %v", c.o, got[i], g, err)
		}
	}
}

// TestRequestsStopped: generations that are stopped in many ways, in the company of
// others, are the beginning of what they are alone, and keep no slot.
func TestRequestsStopped(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba-a", krait.Options{Slots: 3})
	list := calls(rand.New(rand.NewPCG(3, 3)), 24, m.Vocab(), 30)
	want := make([][]int, len(list))
	for i := range list {
		list[i].o.MaxTokens = 12
		g, err := m.GenerateIDs(t.Context(), list[i].prompt, list[i].o)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = g.IDs
	}
	var all sync.WaitGroup
	for i, c := range list {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			c.o.OnToken = func(int, time.Time) {
				if n++; i%3 == 0 && n == i%12 {
					cancel()
				}
			}
			g, err := m.GenerateIDs(ctx, c.prompt, c.o)
			stopped := i%3 == 0 && i%12 > 0
			if stopped != errors.Is(err, context.Canceled) || !stopped && err != nil || !slices.Equal(g.IDs, want[i][:n]) || stopped && n != i%12 {
				t.Errorf("generation %d: %+v, %v, alone %v", i, g, err, want[i])
			}
		})
	}
	all.Wait()
	for range 3 { // all slots are free
		sequence(t, m)
	}
	if _, err := m.GenerateIDs(t.Context(), []int{1}, krait.Generate{}); err == nil || !strings.Contains(err.Error(), "all 3 state slots are taken") {
		t.Errorf("without slots: %v", err)
	}
}

// TestRequestsOfContext: one that outgrows its context ends with an error, and those
// beside it do not notice.
func TestRequestsOfContext(t *testing.T) {
	m := openModel(t, "../testdata/golden/jamba", krait.Options{Slots: 2, Context: 20})
	o := krait.Generate{MaxTokens: 10, IgnoreEOS: true}
	want, err := m.GenerateIDs(t.Context(), []int{1, 2, 3}, o)
	if err != nil {
		t.Fatal(err)
	}
	const short = "a sequence of 21 tokens; the KV cache has room for 20: open the model with more context"
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			switch i % 3 {
			case 0:
				if g, err := m.GenerateIDs(t.Context(), []int{1, 2, 3}, o); err != nil || !slices.Equal(g.IDs, want.IDs) {
					t.Errorf("%+v, %v", g, err)
				}
			case 1:
				if g, err := m.GenerateIDs(t.Context(), make([]int, 15), o); err == nil || err.Error() != short || len(g.IDs) != 6 {
					t.Errorf("%+v, %v", g, err)
				}
			case 2:
				if g, err := m.GenerateIDs(t.Context(), make([]int, 21), o); err == nil || err.Error() != short || len(g.IDs) != 0 {
					t.Errorf("%+v, %v", g, err)
				}
			}
		})
	}
	all.Wait()
}

// TestRequestsBeside: sequences that are stepped by themselves go on beside generations.
func TestRequestsBeside(t *testing.T) {
	m := openModel(t, "../testdata/golden/mamba-a", krait.Options{Slots: 3})
	text := randomIDs(40, m.Vocab())
	s := sequence(t, m)
	want := stepped(t, s, text...)
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	list := calls(rand.New(rand.NewPCG(4, 4)), 4, m.Vocab(), 30)
	all.Go(func() { atOnce(t, m, list) })
	var got []float32
	for _, id := range text {
		got = stepped(t, s, id)
	}
	all.Wait()
	if !sameBits(got, want) {
		t.Error("a sequence beside generations has other logits")
	}
}

func TestMaxTokensPerStep(t *testing.T) {
	for want, o := range map[string]krait.Options{
		"MaxTokensPerStep: at most 70 tokens per step; with 8 slots there must be at least 71: one for each sequence but one, and 64 of a prompt": {MaxTokensPerStep: 70},
		"at most -1 tokens per step": {MaxTokensPerStep: -1, Slots: 1},
	} {
		if _, err := krait.Embedded(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	for grain, o := range map[int]krait.Options{
		64:  {Slots: 4},
		512: {Slots: 4, Sharding: krait.Sharding{States: "ssm=bf16"}},
		128: {Slots: 4, Sharding: krait.Sharding{States: "conv=f16"}, MaxTokensPerStep: 180},
	} {
		m := openModel(t, "../testdata/golden/mamba2-g1", o)
		if got := m.Session().Grain(stepOptions(o)); got != grain {
			t.Errorf("%+v: prompts are cut at multiples of %d, want %d", o, got, grain)
		}
	}
}
