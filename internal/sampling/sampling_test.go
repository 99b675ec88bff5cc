package sampling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var negInf = float32(math.Inf(-1))

// distribution is a plain implementation of the steps, in float64, that sorts
// everything: the probability of each token. It also says whether a sum in
// top-p comes so close to p that rounding may decide.
func distribution(cfg Config, logits []float32, accepted []int) (probs []float64, close bool) {
	scores := make([]float64, len(logits))
	for id, x := range logits {
		scores[id] = float64(x)
		if cfg.RepetitionPenalty > 0 && slices.Contains(accepted, id) {
			if x > 0 {
				scores[id] /= cfg.RepetitionPenalty
			} else {
				scores[id] *= cfg.RepetitionPenalty
			}
			if x != negInf { // logits are float32, and stay finite
				scores[id] = float64(float32(min(max(scores[id], -math.MaxFloat32), math.MaxFloat32)))
			}
		}
	}
	order := make([]int, len(scores)) // best first
	for id := range order {
		order[id] = id
	}
	sort.SliceStable(order, func(i, j int) bool { return scores[order[i]] > scores[order[j]] })
	probs = make([]float64, len(scores))
	if cfg.Temperature == 0 {
		probs[order[0]] = 1
		return probs, false
	}
	if k := cfg.TopK; k > 0 && k < len(order) {
		for k < len(order) && scores[order[k]] == scores[order[k-1]] {
			k++
		}
		order = order[:k]
	}
	total := 0.0
	for _, id := range order {
		probs[id] = math.Exp((scores[id] - scores[order[0]]) / cfg.Temperature)
		total += probs[id]
	}
	if cfg.TopP > 0 && cfg.TopP < 1 {
		reached := 0.0
		for i, id := range order {
			if reached += probs[id]; math.Abs(reached/total-cfg.TopP) < 1e-9 {
				close = true
			}
			if reached >= cfg.TopP*total {
				for _, id := range order[i+1:] {
					probs[id] = 0
				}
				total = reached
				break
			}
		}
	}
	for id := range probs {
		probs[id] /= total
	}
	return probs, close
}

// probabilities is what the sampler has after its filters.
func (s *Sampler) probabilities() []float64 {
	probs := make([]float64, len(s.scores))
	for i, id := range s.ids {
		probs[id] = s.weights[i] / s.mass
	}
	return probs
}

func anyConfig() *rapid.Generator[Config] {
	return rapid.Custom(func(t *rapid.T) Config {
		return Config{
			Temperature:       rapid.SampledFrom([]float64{0, 0.01, 0.7, 1, 3}).Draw(t, "temperature"),
			TopK:              rapid.IntRange(0, 12).Draw(t, "top-k"),
			TopP:              rapid.OneOf(rapid.SampledFrom([]float64{0, 1e-9, 0.5, 0.999999, 1}), rapid.Float64Range(0, 1)).Draw(t, "top-p"),
			RepetitionPenalty: rapid.SampledFrom([]float64{0, 0.5, 1, 1.3, 100}).Draw(t, "penalty"),
			Seed:              rapid.Uint64().Draw(t, "seed"),
		}
	})
}

// anyLogits draws logits with ties, zeros of both signs and excluded tokens.
func anyLogits(n int) *rapid.Generator[[]float32] {
	one := rapid.OneOf(
		rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), 1, 1, -1, 2.5, negInf}),
		rapid.Float32Range(-10, 10),
		rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32),
	)
	return rapid.SliceOfN(one, n, n)
}

func TestAgainstPlainImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyConfig().Draw(t, "config")
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.SampledFrom([]int{1, 2, 5, 20, 50}).Draw(t, "vocabulary")
		accepted := rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 10).Draw(t, "accepted")
		for _, id := range accepted {
			s.Accept(id)
		}
		for range 3 { // buffers are used again
			logits := anyLogits(n).Draw(t, "logits")
			before := slices.Clone(logits)
			id, err := s.Next(logits)
			if !slices.Equal(logits, before) {
				t.Fatal("the caller's logits were changed")
			}
			if slices.Max(logits) == negInf {
				if err == nil {
					t.Fatal("no error when every token is excluded")
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			want, close := distribution(cfg, logits, accepted)
			if want[id] == 0 && !close {
				t.Fatalf("chose %d, which has probability 0", id)
			}
			if cfg.Temperature > 0 && !close {
				for i, p := range s.probabilities() {
					if math.Abs(p-want[i]) > 1e-9 {
						t.Fatalf("token %d has probability %v, want %v", i, p, want[i])
					}
				}
			}
			s.Accept(id)
			accepted = append(accepted, id)
		}
	})
}

// What the filters keep, at ties and at sums that reach p exactly.
func TestFilters(t *testing.T) {
	ties := []float32{1, 1, 1, 1}
	for _, c := range []struct {
		logits []float32
		k      int
		p      float64
		want   []int32
	}{
		{ties, 0, 0, []int32{0, 1, 2, 3}},
		{ties, 2, 0, []int32{0, 1, 2, 3}}, // ties at the k-th value stay
		{ties, 9, 1, []int32{0, 1, 2, 3}},
		{ties, 0, 0.25, []int32{0}},
		{ties, 0, 0.2501, []int32{0, 1}},
		{ties, 0, 0.5, []int32{0, 1}},
		{ties, 0, 0.75, []int32{0, 1, 2}},
		{ties, 0, 1e-9, []int32{0}},
		{[]float32{1, 5, 3, 5, 3, negInf}, 1, 0, []int32{1, 3}},
		{[]float32{1, 5, 3, 5, 3, negInf}, 3, 0, []int32{1, 2, 3, 4}},
		{[]float32{1, 5, 3, 5, 3, negInf}, 3, 0.01, []int32{1}},
		{[]float32{0, 20, 0, 0}, 0, 0.99, []int32{1}},
		{[]float32{0, 20, 0, 0}, 0, 1 - 5e-9, []int32{0, 1}}, // the others have 2e-9 each
		{[]float32{0, 2000, 0, 0}, 0, 1 - 1e-9, []int32{1}},
		{[]float32{1, 5, 3}, 0, math.Nextafter(1, 0), []int32{0, 1, 2}},
	} {
		s, err := New(Config{Temperature: 1, TopK: c.k, TopP: c.p})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(c.logits); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(s.ids, c.want) {
			t.Errorf("%v, k %d, p %v: kept %v, want %v", c.logits, c.k, c.p, s.ids, c.want)
		}
	}
}

// Frequencies of many draws follow the distribution: chi-square with a fixed
// seed, against the 99.9% quantile.
func TestFrequencies(t *testing.T) {
	logits := []float32{1, 2, negInf, 0.5, 2, -1, 1.5, -3}
	for _, c := range []struct {
		cfg   Config
		bound float64 // for one degree of freedom less than there are tokens
	}{
		{Config{Temperature: 1, Seed: 1}, 22.46},                                // 7 tokens
		{Config{Temperature: 0.5, TopK: 3, Seed: 2}, 13.82},                     // 3 tokens
		{Config{Temperature: 2, TopP: 0.6, Seed: 3}, 13.82},                     // 3 tokens
		{Config{Temperature: 1, RepetitionPenalty: 1.5, Seed: 4}, 22.46},        // 7 tokens
		{Config{Temperature: 1.5, TopK: 5, TopP: 0.9, Seed: 5}, 18.47},          // 5 tokens
		{Config{Temperature: 1e-3, RepetitionPenalty: 0.5, Seed: 6}, 1e-9},      // 1 token
		{Config{Temperature: 1, TopK: 1, RepetitionPenalty: 1, Seed: 7}, 10.83}, // 2 that tie
	} {
		s, err := New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		accepted := []int{1, 5, 1}
		for _, id := range accepted {
			s.Accept(id)
		}
		const draws = 100_000
		counts := make([]int, len(logits))
		for range draws {
			id, err := s.Next(logits)
			if err != nil {
				t.Fatal(err)
			}
			counts[id]++
		}
		want, _ := distribution(c.cfg, logits, accepted)
		chi := 0.0
		for id, p := range want {
			if p == 0 {
				if counts[id] > 0 {
					t.Errorf("%+v: token %d was drawn %d times and has probability 0", c.cfg, id, counts[id])
				}
				continue
			}
			d := float64(counts[id]) - p*draws
			chi += d * d / (p * draws)
		}
		if chi > c.bound {
			t.Errorf("%+v: chi-square is %.2f, over %.2f; counts %v, probabilities %.4f", c.cfg, chi, c.bound, counts, want)
		}
	}
}

func TestGreedy(t *testing.T) {
	for _, c := range []struct {
		logits   []float32
		penalty  float64
		accepted []int
		want     int
	}{
		{[]float32{-5}, 0, nil, 0},
		{[]float32{1, 3, 2, 3}, 0, nil, 1}, // the lowest of equal ones
		{[]float32{negInf, -2, negInf}, 0, nil, 1},
		{[]float32{float32(math.Copysign(0, -1)), 0}, 0, nil, 0}, // zeros are equal
		{[]float32{1, 3, 2, 3}, 1.2, []int{1}, 3},
		{[]float32{1, 4, 2, 3}, 1.2, []int{1, 1, 1, 1, 1}, 1}, // once: 3.33
		{[]float32{-1, -2}, 3, []int{0}, 1},
		{[]float32{1, 2}, 0.25, []int{0}, 0},
		{[]float32{math.MaxFloat32, 1}, 1e-300, []int{0}, 0},          // overflows
		{[]float32{-1, negInf}, math.MaxFloat64, []int{0}, 0},         // never excludes
		{[]float32{0, -1, 5e-45}, math.MaxFloat64, []int{0, 1, 2}, 0}, // 5e-45 becomes 0
	} {
		s, err := New(Config{RepetitionPenalty: c.penalty})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range c.accepted {
			s.Accept(id)
		}
		if got, err := s.Next(c.logits); err != nil || got != c.want {
			t.Errorf("%v, penalty %v of %v: got %d, %v, want %d", c.logits, c.penalty, c.accepted, got, err, c.want)
		}
	}
}

func TestExtremeTemperatures(t *testing.T) {
	logits := []float32{-math.MaxFloat32, 1, math.MaxFloat32, negInf}
	for _, temperature := range []float64{math.SmallestNonzeroFloat64, 1e-300, math.MaxFloat64} {
		for _, p := range []float64{1, 0.99, math.SmallestNonzeroFloat64} {
			s, err := New(Config{Temperature: temperature, TopP: p, RepetitionPenalty: 2})
			if err != nil {
				t.Fatal(err)
			}
			s.Accept(3) // excluded, which a penalty must not change
			for range 100 {
				id, err := s.Next(logits)
				if err != nil || id == 3 || temperature < 1 && id != 2 {
					t.Fatalf("temperature %v, p %v: got %d, %v", temperature, p, id, err)
				}
			}
		}
	}
}

func TestSeed(t *testing.T) {
	logits := randomLogits(1000)
	text := func(seed uint64) string {
		s, err := New(Config{Temperature: 1, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		var ids []int
		for range 20 {
			id, err := s.Next(logits)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return fmt.Sprint(ids)
	}
	if first, again := text(7), text(7); first != again {
		t.Error("the same seed gave two texts")
	}
	if text(7) == text(8) {
		t.Error("two seeds gave the same text")
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
		{Config{RepetitionPenalty: -1}, "repetition penalty is -1; it must be a positive number"},
		{Config{RepetitionPenalty: nan}, "repetition penalty is NaN"},
		{Config{RepetitionPenalty: inf}, "repetition penalty is +Inf"},
	} {
		if s, err := New(c.cfg); s != nil || err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestNextErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, temperature := range []float64{0, 1} {
		for _, c := range []struct {
			logits []float32
			accept int
			want   string
		}{
			{nil, 0, "there are no logits"},
			{[]float32{1, nan, 2}, 0, "logit 1 of 3 is NaN"},
			{[]float32{nan, nan}, 0, "logit 0 of 2 is NaN"},
			{[]float32{1, inf}, 0, "logit 1 of 2 is +Inf"},
			{[]float32{negInf, negInf}, 0, "all 2 logits are -Inf"},
			{[]float32{1, 2}, 2, "token 2 was accepted, but the vocabulary has the tokens 0 to 1"},
			{[]float32{1, 2}, -1, "token -1 was accepted"},
			{[]float32{1, 2}, math.MaxInt, fmt.Sprintf("token %d was accepted", math.MaxInt)},
		} {
			s, err := New(Config{Temperature: temperature})
			if err != nil {
				t.Fatal(err)
			}
			s.Accept(c.accept)
			for range 2 { // an error stays
				if _, err := s.Next(c.logits); err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("%v: got %v, want %s", c.logits, err, c.want)
				}
			}
		}
	}
	s, _ := New(Config{})
	if _, err := s.Next([]float32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next([]float32{1, 2, 3}); err == nil || !strings.HasPrefix(err.Error(), "there are 3 logits, but there were 2") {
		t.Errorf("got %v", err)
	}
}

func TestThreshold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 300)), 1, 50).Draw(t, "keys")
		k := rapid.IntRange(1, len(keys)).Draw(t, "k")
		ones := slices.Repeat([]float64{1}, len(keys))
		got, above := threshold(keys, ones, float64(k))
		slices.Sort(keys)
		slices.Reverse(keys)
		if want := keys[k-1]; got != want || above != float64(slices.Index(keys, want)) {
			t.Fatalf("got %d and %v above, want %d", got, above, want)
		}
	})
}

func TestOrderKey(t *testing.T) {
	scores := []float32{negInf, -math.MaxFloat32, -1, -1e-45, 0, 1e-45, 1, math.MaxFloat32}
	for i := 1; i < len(scores); i++ {
		if orderKey(scores[i-1]) >= orderKey(scores[i]) {
			t.Errorf("%v is not before %v", scores[i-1], scores[i])
		}
	}
	if orderKey(float32(math.Copysign(0, -1))) != orderKey(0) {
		t.Error("-0 is not 0")
	}
}

func TestExp(t *testing.T) {
	for x := 0.0; x >= -690; x -= 1e-3 {
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 1e-11*want {
			t.Fatalf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{-690.001, -1e300, math.Inf(-1)} {
		if exp(x) != 0 {
			t.Errorf("exp(%v) is %v, want 0", x, exp(x))
		}
	}
	if exp(0) != 1 || exp(math.Copysign(0, -1)) != 1 {
		t.Error("exp(0) is not 1")
	}
}

func TestNoAllocation(t *testing.T) {
	s, err := New(Config{Temperature: 1, TopK: 50, TopP: 0.9, RepetitionPenalty: 1.1})
	if err != nil {
		t.Fatal(err)
	}
	logits := randomLogits(1000)
	step := func() {
		id, err := s.Next(logits)
		if err != nil {
			t.Fatal(err)
		}
		s.Accept(id)
	}
	for range 1000 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
	if len(s.accepted) > 1 || len(s.repeated) > len(logits) {
		t.Errorf("the sampler keeps %d accepted and %d repeated tokens", len(s.accepted), len(s.repeated))
	}
}

// randomLogits looks like a model's output: most tokens are unlikely.
func randomLogits(n int) []float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(3 * rng.NormFloat64())
	}
	return logits
}

func BenchmarkNext(b *testing.B) {
	logits := randomLogits(65_024)
	flat := make([]float32, len(logits)) // every token ties
	for _, c := range []struct {
		name   string
		cfg    Config
		logits []float32
	}{
		{"greedy", Config{}, logits},
		{"temperature", Config{Temperature: 0.8}, logits},
		{"topk", Config{Temperature: 0.8, TopK: 50}, logits},
		{"topp", Config{Temperature: 0.8, TopP: 0.95}, logits},
		{"topp-flat", Config{Temperature: 0.8, TopP: 0.95}, flat},
		{"all", Config{Temperature: 0.8, TopK: 50, TopP: 0.95, RepetitionPenalty: 1.1}, logits},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := New(c.cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				id, err := s.Next(c.logits)
				if err != nil {
					b.Fatal(err)
				}
				s.Accept(id)
			}
		})
	}
}
