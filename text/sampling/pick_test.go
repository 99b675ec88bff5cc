package sampling

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// probabilities are those with which each token is to be chosen, by the definition, in
// float64: read are the tokens of the prompt, out those of the output.
func probabilities(cfg Config, logits []float32, read, out []int) []float64 {
	x := make([]float64, len(logits))
	for id := range x {
		x[id] = float64(logits[id])
	}
	ban := func(id int) { x[id] = math.Inf(-1) }
	only := false
	for _, b := range cfg.LogitBias {
		only = only || b == 100
	}
	for id := range x {
		b, has := cfg.LogitBias[id]
		switch {
		case cfg.Mask != nil && cfg.Mask()[id/32]>>(id%32)&1 == 0, only && b != 100, b == -100:
			ban(id)
		case has && !only:
			x[id] += b
		}
	}
	for id := range x {
		if p := cfg.RepetitionPenalty; p != 0 && (slices.Contains(read, id) || slices.Contains(out, id)) {
			p = float64(float32(p))
			if x[id] > 0 {
				x[id] /= p
			} else {
				x[id] *= p
			}
		}
		n := 0
		for _, o := range out {
			if o == id {
				n++
			}
		}
		if n > 0 {
			x[id] -= cfg.PresencePenalty + float64(n)*cfg.FrequencyPenalty
		}
	}
	for id := range x {
		x[id] = float64(float32(x[id])) // as they are kept
	}
	order := make([]int, len(x))
	for id := range order {
		order[id] = id
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[b], x[a]) })
	p := make([]float64, len(x))
	best := x[order[0]]
	if math.IsInf(best, -1) {
		return nil
	}
	if cfg.Temperature == 0 {
		p[order[0]] = 1
		return p
	}
	for i, id := range order {
		if k := cfg.TopK; k > 0 && i >= k && x[id] < x[order[k-1]] {
			break
		}
		p[id] = math.Exp((x[id] - best) / float64(float32(cfg.Temperature)))
	}
	normalise(p)
	sum := 0.0
	for _, id := range order {
		if q := float64(float32(cfg.TopP)); q > 0 && q < 1 && sum >= q {
			p[id] = 0
		}
		sum += p[id]
	}
	for _, id := range order {
		if p[id] < cfg.MinP*p[order[0]] {
			p[id] = 0
		}
	}
	normalise(p)
	return p
}

func normalise(p []float64) {
	sum := 0.0
	for _, w := range p {
		sum += w
	}
	for i := range p {
		p[i] /= sum
	}
}

// may reports whether a random number falls on a token, to rounding.
func may(p []float64, id int, uniform float64) bool {
	const eps = 1e-9
	before := 0.0
	for _, w := range p[:id] {
		before += w
	}
	return p[id] > 0 && before <= uniform+eps && uniform-eps <= before+p[id]
}

// drawConfig is a config at random, with everything that is chosen on the host or not.
func drawConfig(t *rapid.T, r *rand.Rand, n int) Config {
	cfg := Config{Seed: r.Uint64(), LogitBias: map[int]float64{}}
	if r.IntN(4) > 0 {
		cfg.Temperature = 0.25 + 2*r.Float64()
	}
	if r.IntN(2) == 0 {
		cfg.TopK = r.IntN(n + 2)
	}
	if r.IntN(3) == 0 {
		cfg.TopP = r.Float64()
	}
	if r.IntN(2) == 0 {
		cfg.MinP = r.Float64() * r.Float64()
	}
	if r.IntN(2) == 0 {
		cfg.RepetitionPenalty = 0.5 + r.Float64()
	}
	cfg.PresencePenalty, cfg.FrequencyPenalty = float64(r.IntN(5)-2), float64(r.IntN(5)-2)/4
	for range r.IntN(4) {
		cfg.LogitBias[r.IntN(n)] = float64(r.IntN(41)-20) / 4
	}
	switch r.IntN(8) {
	case 0:
		cfg.LogitBias[r.IntN(n)] = -100
	case 1:
		cfg.LogitBias[r.IntN(n)], cfg.LogitBias[r.IntN(n)] = 100, 100
	case 2:
		mask := make([]int32, graph.SeenWords(n))
		for range 1 + r.IntN(n) {
			kernels.SetSeen(mask, r.IntN(n))
		}
		cfg.Mask = func() []int32 { return mask }
		if r.IntN(2) == 0 {
			return Config{Seed: cfg.Seed, Mask: cfg.Mask} // the highest of those allowed
		}
	}
	return cfg
}

func drawLogits(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Round(r.NormFloat64()*16) / 8) // some are equal
	}
	return x
}

// TestPick: what is chosen is what the definition chooses of the same random number.
func TestPick(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.SampledFrom([]int{1, 2, 5, 31, 32, 33, 64, 65, 257}).Draw(t, "vocabulary")
		cfg := drawConfig(t, r, n)
		s, err := New(cfg, n)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(cfg.Seed, 0))
		read, out := []int{r.IntN(n), r.IntN(n)}, []int(nil)
		s.Read(read...)
		for range 5 {
			logits := drawLogits(r, n)
			kept := slices.Clone(logits)
			uniform := 0.0
			if cfg.Temperature > 0 {
				uniform = rng.Float64()
			}
			want := probabilities(cfg, logits, read, out)
			id, err := s.Sample(logits)
			if want == nil {
				if err == nil {
					t.Fatalf("%+v: %d is chosen of none", cfg, id)
				}
				return
			}
			if err != nil || !slices.Equal(kept, logits) || !may(want, id, uniform) {
				t.Fatalf("%+v, read %v, output %v, logits %v: chose %d (%v) for %v; probabilities %v", cfg, read, out, logits, id, err, uniform, want)
			}
			s.Accept(id)
			out = append(out, id)
		}
	})
}

// TestPickPlain: where nothing is left for the host, it gives what choose gives.
func TestPickPlain(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		const n = 100
		cfg := Config{Temperature: 0.1 + r.Float64(), TopK: r.IntN(n), TopP: r.Float64(), RepetitionPenalty: 1 + r.Float64(), Seed: r.Uint64()}
		plain, _ := New(cfg, n)
		all := slices.Repeat([]int32{-1}, graph.SeenWords(n))
		cfg.Mask = func() []int32 { return all } // which excludes nothing, and is asked on the host
		host, _ := New(cfg, n)
		for range 8 {
			logits := drawLogits(r, n)
			want, err := plain.Sample(logits)
			got, err2 := host.Sample(logits)
			if got != want || err != nil || err2 != nil {
				t.Fatalf("%+v: %d on the host, %d by choose (%v, %v)", cfg, got, want, err, err2)
			}
			plain.Accept(want)
			host.Accept(got)
		}
	})
}

// TestMinP keeps exactly those that have at least p times the highest probability.
func TestMinP(t *testing.T) {
	p := []float64{0.4, 0.2, 0.1, 0.05, 0.25} // times the highest: 1, 0.5, 0.25, 0.125, 0.625
	logits := make([]float32, len(p))
	for i := range p {
		logits[i] = float32(math.Log(p[i]))
	}
	for minP, want := range map[float64][]int{0.001: {0, 1, 2, 3, 4}, 0.124: {0, 1, 2, 3, 4}, 0.126: {0, 1, 2, 4}, 0.499: {0, 1, 4}, 0.501: {0, 4}, 0.626: {0}, 1: {0}} {
		s := newSampler(t, Config{Temperature: 1, MinP: minP, Seed: 3}, len(p))
		drawn := map[int]bool{}
		for range 1000 {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			drawn[id] = true
			s.Accept(id)
		}
		var got []int
		for id := range p {
			if drawn[id] {
				got = append(got, id)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("min-p %v: %v are drawn, want %v", minP, got, want)
		}
	}
	s := newSampler(t, Config{Temperature: 1, MinP: 1}, 64) // ties with the best stay, on vectors, too
	drawn := map[int]bool{}
	for range 400 {
		id, err := s.Sample(slices.Repeat([]float32{-3}, 64))
		if drawn[id] = true; err != nil {
			t.Fatal(err)
		}
		s.Accept(id)
	}
	if len(drawn) < 60 {
		t.Errorf("of 64 equal tokens %d are drawn", len(drawn))
	}
}

// TestBias: -100 is never chosen, and 100 always, whatever the logits.
func TestBias(t *testing.T) {
	logits := []float32{1000, -1000, 3, 2}
	for _, temperature := range []float64{0, 1, 100} {
		never := newSampler(t, Config{Temperature: temperature, LogitBias: map[int]float64{0: -100}}, 4)
		always := newSampler(t, Config{Temperature: temperature, LogitBias: map[int]float64{1: 100}}, 4)
		for range 100 {
			if id, err := never.Sample(logits); id == 0 || err != nil {
				t.Fatalf("temperature %v: chose %d (%v) at a bias of -100", temperature, id, err)
			}
			if id, err := always.Sample(logits); id != 1 || err != nil {
				t.Fatalf("temperature %v: chose %d (%v) where 1 has a bias of 100", temperature, id, err)
			}
		}
	}
	none := newSampler(t, Config{LogitBias: map[int]float64{0: -100, 1: -100, 2: -100, 3: -100}}, 4)
	if id, err := none.Sample(logits); err == nil {
		t.Errorf("chose %d of none", id)
	}
}

// TestPenalties: the prompt does not count for the presence and frequency penalties.
func TestPenalties(t *testing.T) {
	logits := []float32{3, 2.5, 2}
	run := func(cfg Config, read ...int) (out []int) {
		s := newSampler(t, cfg, 3)
		s.Read(read...)
		for range 6 {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			s.Accept(id)
			out = append(out, id)
		}
		return out
	}
	for _, c := range []struct {
		cfg  Config
		want []int
	}{
		{Config{PresencePenalty: 0.75}, []int{0, 1, 0, 0, 0, 0}},
		{Config{PresencePenalty: 1.25}, []int{0, 1, 2, 0, 0, 0}},
		{Config{FrequencyPenalty: 0.75}, []int{0, 1, 0, 2, 1, 0}},
		{Config{PresencePenalty: -1, FrequencyPenalty: -1}, []int{0, 0, 0, 0, 0, 0}},
	} {
		if got := run(c.cfg, 0, 0, 0); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.cfg, got, c.want)
		}
	}
}

// TestLogProbs: against float64, and that they change nothing.
func TestLogProbs(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := 1 + r.IntN(200)
		logits, sum := drawLogits(r, n), 0.0
		if r.IntN(3) == 0 {
			logits[r.IntN(n)] += 300 // far above the others
		}
		order := make([]int, n)
		for id, x := range logits {
			sum += math.Exp(float64(x) - 300)
			order[id] = id
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
		cfg := Config{Temperature: 2, Seed: r.Uint64()}
		plain, _ := New(cfg, n)
		cfg.LogProbs, cfg.TopLogProbs = true, r.IntN(n+1)
		s, err := New(cfg, n)
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.Sample(logits)
		if other, _ := plain.Sample(logits); id != other || err != nil {
			t.Fatalf("%d with log-probabilities (%v), %d without", id, err, other)
		}
		near := func(got float64, id int) {
			if want := float64(logits[id]) - 300 - math.Log(sum); !(math.Abs(got-want) < 1e-9) || got > 0 {
				t.Fatalf("token %d has %v, want %v", id, got, want)
			}
		}
		p := s.LogProbs()
		near(p.Chosen, id)
		if len(p.Top) != cfg.TopLogProbs {
			t.Fatalf("%d tokens, want %d", len(p.Top), cfg.TopLogProbs)
		}
		for i, x := range p.Top {
			near(x.LogProb, x.ID)
			if x.ID != order[i] {
				t.Fatalf("%v: place %d has token %d, want %d", logits, i, x.ID, order[i])
			}
		}
	})
}
