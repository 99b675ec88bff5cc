package sampling

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

func newSampler(t *testing.T, cfg Config, vocab int) *Sampler {
	t.Helper()
	s, err := New(cfg, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestChoice: what the config says, and for each token a random number of the seed's own, in any
// order and however often it is asked for; a greedy choice takes none.
func TestChoice(t *testing.T) {
	cfg := Config{Temperature: 0.5, TopK: 3, TopP: 0.25, RepetitionPenalty: 2, Seed: 7}
	s, rng := newSampler(t, cfg, 8), rand.New(rand.NewPCG(7, 0))
	var want []kernels.Choice
	for range 9 {
		want = append(want, kernels.Choice{Temperature: 0.5, TopK: 3, TopP: 0.25, Penalty: 2, Uniform: rng.Float64()})
	}
	for i := range 5 {
		for _, drafts := range [][]int{nil, {1, 2, 3}, {1}, {4, 4, 4, 4}, nil} {
			if got := s.Choice(drafts...); got != want[i+len(drafts)] {
				t.Errorf("token %d after drafts %v: got %+v, want %+v", i, drafts, got, want[i+len(drafts)])
			}
		}
		s.Accept(0)
	}
	if one, other := newSampler(t, cfg, 8).Choice(), newSampler(t, Config{Temperature: 1, Seed: 8}, 8).Choice(); one.Uniform == other.Uniform {
		t.Error("two seeds give the same number")
	}
	greedy := newSampler(t, Config{}, 8)
	if got := greedy.Choice(); got != (kernels.Choice{}) || greedy.rng.Float64() != rand.New(rand.NewPCG(0, 0)).Float64() {
		t.Errorf("a greedy choice is %+v", got)
	}
}

// TestSeen: the bits of what was accepted, and of nothing else.
func TestSeen(t *testing.T) {
	for _, vocab := range []int{1, 31, 32, 33, 65} {
		s := newSampler(t, Config{RepetitionPenalty: 2}, vocab)
		s.Accept(vocab - 1)
		s.Read(0)
		s.Accept(0)
		seen := s.Seen()
		if len(seen) != graph.SeenWords(vocab) {
			t.Fatalf("vocabulary of %d: %d words", vocab, len(seen))
		}
		for id := range vocab {
			if got := kernels.Seen(seen, id); got != (id == 0 || id == vocab-1) {
				t.Errorf("vocabulary of %d: token %d is seen: %v", vocab, id, got)
			}
		}
		for n := range 3 { // with drafts, which leave no trace
			drafts := []int{vocab / 2, 0, vocab / 3}[:n]
			for id := range vocab {
				if got := kernels.Seen(s.Seen(drafts...), id); got != (id == 0 || id == vocab-1 || slices.Contains(drafts, id)) {
					t.Errorf("vocabulary of %d: token %d is seen with drafts %v: %v", vocab, id, drafts, got)
				}
			}
		}
	}
}

func TestConfigErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Temperature: -0.5}, "temperature is -0.5; it must be 0 (greedy) or a positive number"},
		{Config{Temperature: nan}, "temperature is NaN"},
		{Config{Temperature: inf}, "temperature is +Inf"},
		{Config{TopK: -1}, "top-k is -1; it must be 0 (off) or a positive number"},
		{Config{TopP: -0.1}, "top-p is -0.1; it must be above 0 and at most 1 (off), or 0 (off)"},
		{Config{TopP: 1.5}, "top-p is 1.5"},
		{Config{TopP: nan}, "top-p is NaN"},
		{Config{MinP: -0.1}, "min-p is -0.1; it must be 0 (off), or above 0 and at most 1"},
		{Config{MinP: nan}, "min-p is NaN"},
		{Config{PresencePenalty: nan}, "presence penalty is NaN"},
		{Config{FrequencyPenalty: -inf}, "frequency penalty is -Inf"},
		{Config{TopLogProbs: 9, LogProbs: true}, "9 log-probabilities per token; the number must be from 0 to 8"},
		{Config{TopLogProbs: 2}, "2 log-probabilities per token without that of the chosen token"},
		{Config{LogitBias: map[int]float64{3: 1, 8: 0}}, "logit bias of token 8; ids go from 0 to 7"},
		{Config{LogitBias: map[int]float64{-1: 0}}, "logit bias of token -1"},
		{Config{LogitBias: map[int]float64{3: 100.5}}, "logit bias of token 3 is 100.5; it must be from -100, which excludes the token, to 100, which excludes all others"},
		{Config{LogitBias: map[int]float64{3: nan}}, "logit bias of token 3 is NaN"},
		{Config{RepetitionPenalty: -1}, "repetition penalty is -1; it must be a positive number"},
		{Config{RepetitionPenalty: nan}, "repetition penalty is NaN"},
		{Config{RepetitionPenalty: inf}, "repetition penalty is +Inf"},
	} {
		if s, err := New(c.cfg, 8); s != nil || err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
