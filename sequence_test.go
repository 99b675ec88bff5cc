package krait

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/session"
)

// tokensOf draws tokens of a model.
func tokensOf(m *Model, n int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, n)
	for i := range out {
		out[i] = rng.IntN(m.Vocab())
	}
	return out
}

// fedOneByOne feeds tokens one by one, and returns the logits after each.
func fedOneByOne(t *testing.T, s *Sequence, tokens []int) (all [][]float32) {
	t.Helper()
	for _, id := range tokens {
		logits, err := s.Step(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Clone(logits))
	}
	return all
}

func newSequence(t *testing.T, m *Model) *Sequence {
	t.Helper()
	s, err := m.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFork: a fork and what it was forked from go on as sequences do that were fed all
// their tokens, to the last bit, with states, caches and both, at ends of pages and
// inside of them, whichever is closed first.
func TestFork(t *testing.T) {
	for i, name := range []string{"mamba2-g1", "jamba", "zamba2"} {
		for k, ranks := range []int{1, 3} {
			if i%2 != k && goldens.Few(t) {
				continue
			}
			t.Run(fmt.Sprint(name, ranks), func(t *testing.T) {
				m := openModel(t, "testdata/golden/"+name, Options{Slots: 3, PageTokens: 4, Sharding: Sharding{Ranks: ranks}})
				for _, n := range []int{0, 1, 4, 7} {
					begin, left, right := tokensOf(m, n, 1), tokensOf(m, 5, 2), tokensOf(m, 6, 3)
					whole := newSequence(t, m)
					want := fedOneByOne(t, whole, slices.Concat(begin, right))[n:]
					if err := whole.Reset(); err != nil {
						t.Fatal(err)
					}
					wantLeft := fedOneByOne(t, whole, slices.Concat(begin, left))[n:]
					whole.Close()

					s := newSequence(t, m)
					fedOneByOne(t, s, begin)
					fork, err := s.Fork()
					if err != nil {
						t.Fatal(err)
					}
					if got, err := fork.Len(); got != n || err != nil {
						t.Errorf("a fork has %d tokens of %d, %v", got, n, err)
					}
					gotLeft := fedOneByOne(t, s, left)
					s.Close()
					if got := fedOneByOne(t, fork, right); !equalRows(got, want) || !equalRows(gotLeft, wantLeft) {
						t.Errorf("after %d tokens a fork does not go on as the sequence", n)
					}
					fork.Close()
				}
			})
		}
	}
	m := embeddedModel(t, Options{Slots: 1})
	s := newSequence(t, m)
	if _, err := s.Fork(); err == nil || !strings.Contains(err.Error(), "slot") {
		t.Errorf("a fork without a free slot: %v", err)
	}
	s.Close()
	if _, err := s.Fork(); err == nil {
		t.Error("a fork of a closed sequence")
	}
}

func equalRows(a, b [][]float32) bool { return slices.EqualFunc(a, b, slices.Equal) }

// TestFeed: logits of chosen tokens and kept values are those of single steps, over the
// chunks that a long prompt goes in, while other goroutines step.
func TestFeed(t *testing.T) {
	m := openModel(t, "testdata/golden/mamba-a", Options{Slots: 4, Keep: []string{"layers.0.h", "norm_f"}})
	tokens := tokensOf(m, session.PrefillChunk+40, 4)
	at := []int{0, 1, session.PrefillChunk - 1, session.PrefillChunk, len(tokens) - 2}
	var all sync.WaitGroup
	all.Go(func() {
		s := newSequence(t, m)
		defer s.Close()
		got, err := s.Feed(t.Context(), tokens, Selection{Logits: at, Values: []string{"layers.0.h"}})
		if err != nil {
			t.Error(err)
			return
		}
		one := newSequence(t, m)
		defer one.Close()
		for i, id := range tokens {
			want, err := one.Feed(t.Context(), []int{id}, Selection{Values: []string{"layers.0.h"}})
			if err != nil {
				t.Error(err)
				return
			}
			if j := slices.Index(at, i); j >= 0 && apart(got.Logits[j], want.Logits[0]) > 1e-4 {
				t.Errorf("logits after token %d differ by %g", i, apart(got.Logits[j], want.Logits[0]))
			}
			if d := apart(got.Values["layers.0.h"][i], want.Values["layers.0.h"][0]); d > 1e-4 {
				t.Errorf("the kept value of token %d differs by %g", i, d)
			}
		}
		if len(got.Logits) != len(at) || len(got.Values["layers.0.h"]) != len(tokens) {
			t.Errorf("%d rows of logits, %d of the kept value", len(got.Logits), len(got.Values["layers.0.h"]))
		}
	})
	all.Go(func() {
		s := newSequence(t, m)
		defer s.Close()
		for _, id := range tokens[:64] {
			if _, err := s.Step(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()

	s := newSequence(t, m)
	for want, w := range map[string]Selection{
		"logits after tokens [2] of 2":   {Logits: []int{2}},
		"logits after tokens [1 1] of 2": {Logits: []int{1, 1}},
		"logits after tokens [-1] of 2":  {Logits: []int{-1}},
		"the value layers.1.h is not in": {Values: []string{"layers.1.h"}},
		"the value tokens is not in":     {Values: []string{"tokens"}},
	} {
		if _, err := s.Feed(t.Context(), tokens[:2], w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
	if n, _ := s.Len(); n != 0 {
		t.Errorf("refused questions fed %d tokens", n)
	}
	none, err := s.Feed(t.Context(), tokens[:2], Selection{Logits: []int{}})
	if err != nil || len(none.Logits) != 0 || none.Values != nil {
		t.Errorf("nothing is wanted: %v, %v", none, err)
	}
}

// apart is the largest difference.
func apart(a, b []float32) (d float64) {
	if len(a) != len(b) {
		return 1e9
	}
	for i := range a {
		d = max(d, float64(max(a[i]-b[i], b[i]-a[i])))
	}
	return d
}
