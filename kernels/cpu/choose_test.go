package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/choices"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

var chooseSets = func() map[string]kernels.Set {
	sets := map[string]kernels.Set{"reference": reference.Kernels}
	for _, isa := range ISAs() {
		sets[isa], _ = ForISA(isa)
	}
	return sets
}()

func runChoose(set kernels.Set, cases ...choices.Case) []int32 {
	c := choices.Call(cases...)
	k := set["choose"]
	k.Run(&c, 0, k.Units(&c))
	return c.Results[0].I32
}

// TestChooseGolden: each case by itself, and all in one batch.
func TestChooseGolden(t *testing.T) {
	for name, set := range chooseSets {
		all := runChoose(set, choices.Golden...)
		for i, c := range choices.Golden {
			if got := runChoose(set, c)[0]; got != c.Want || all[i] != c.Want {
				t.Errorf("%s: %s: chose %d, in a batch %d, want %d", name, c.Name, got, all[i], c.Want)
			}
		}
	}
}

// TestChooseShares: of equally spaced random numbers every token gets its share, to
// one that falls on a border.
func TestChooseShares(t *testing.T) {
	const draws = 2_000
	for name, set := range chooseSets {
		for _, s := range choices.Shares {
			var cases []choices.Case
			for i := range draws {
				c := s.Case
				c.Uniform = (float64(i) + 0.5) / draws
				cases = append(cases, c)
			}
			count, total := make([]float64, len(s.Logits)), 0.0
			for _, id := range runChoose(set, cases...) {
				count[id]++
			}
			for _, w := range s.Weights {
				total += w
			}
			for id, w := range s.Weights {
				if want := w / total * draws; math.Abs(count[id]-want) > 1 || w == 0 && count[id] > 0 {
					t.Errorf("%s: %s: token %d is drawn %v times, want %v", name, s.Name, id, count[id], want)
				}
			}
			for _, c := range s.Borders(1e-6) {
				if got := runChoose(set, c)[0]; got != c.Want {
					t.Errorf("%s: %s: %v draws %d, want %d", name, c.Name, c.Uniform, got, c.Want)
				}
			}
		}
	}
}

// TestChooseAgainstReference: what is drawn is what the definition draws, unless rounding decides.
func TestChooseAgainstReference(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.SampledFrom([]int{1, 2, 5, 31, 32, 33, 64, 65, 257}).Draw(t, "vocabulary")
		c := choices.Draw(r, n)
		call := choices.Call(c)
		choice, _ := kernels.ChoiceOf(&call.Args[1], 0, n)
		for name, set := range chooseSets {
			if got := runChoose(set, c)[0]; !reference.MayChoose(c.Logits, choice, call.Args[2].I32, got, 1e-10) {
				t.Fatalf("%s: %+v chose %d, want %d", name, c, got, runChoose(reference.Kernels, c)[0])
			}
		}
	})
}

// TestMayChoose: the test refuses every token but the one that is drawn, away from borders.
func TestMayChoose(t *testing.T) {
	for _, s := range choices.Shares {
		s.Uniform = 0.37
		want := runChoose(reference.Kernels, s.Case)[0]
		call := choices.Call(s.Case)
		choice, _ := kernels.ChoiceOf(&call.Args[1], 0, len(s.Logits))
		for id := int32(-3); int(id) < len(s.Logits)+1; id++ {
			if got := reference.MayChoose(s.Logits, choice, call.Args[2].I32, id, 1e-6); got != (id == want) {
				t.Errorf("%s: %d may be chosen: %v; the choice is %d", s.Name, id, got, want)
			}
		}
	}
}

// TestChoiceRow: a choice is what it was after it was in a row, to 48 bits of the
// random number and 24 of the others, and never off where it was on.
func TestChoiceRow(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		c := choices.DrawChoice(r)
		call := choices.Call(choices.Case{Logits: make([]float32, 20), Choice: c})
		got, ok := kernels.ChoiceOf(&call.Args[1], 0, 20)
		if d := c.Uniform - got.Uniform; !ok || d < 0 || d >= 0x1p-48 {
			t.Fatalf("%+v became %+v, legal: %v", c, got, ok)
		}
		if got.TopK != c.TopK || got.Temperature != float64(float32(c.Temperature)) || got.TopP != float64(float32(c.TopP)) || got.Penalty != float64(float32(c.Penalty)) {
			t.Fatalf("%+v became %+v", c, got)
		}
	})
	row := make([]float32, graph.ChoiceType().Dims[1].Len())
	kernels.Choice{Temperature: 1e-300, TopP: 1e-300, Penalty: 1e300, TopK: math.MaxInt}.Put(row)
	if row[graph.ChoiceTemperature] == 0 || row[graph.ChoiceTopP] == 0 || row[graph.ChoicePenalty] != math.MaxFloat32 || row[graph.ChoiceTopK] < 1<<24 {
		t.Errorf("extreme numbers became %v", row)
	}
}

func TestThreshold(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
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
	scores := []float32{float32(math.Inf(-1)), -math.MaxFloat32, -1, -1e-45, 0, 1e-45, 1, math.MaxFloat32}
	for i := 1; i < len(scores); i++ {
		if orderKey(scores[i-1]) >= orderKey(scores[i]) {
			t.Errorf("%v is not before %v", scores[i-1], scores[i])
		}
	}
	if orderKey(float32(math.Copysign(0, -1))) != orderKey(0) {
		t.Error("-0 is not 0")
	}
}

func TestExp64(t *testing.T) {
	for x := 0.0; x >= -690; x -= 1e-3 {
		if got, want := exp64(x), math.Exp(x); math.Abs(got-want) > 1e-11*want {
			t.Fatalf("exp64(%v) is %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{-690.001, -1e300, math.Inf(-1)} {
		if exp64(x) != 0 {
			t.Errorf("exp64(%v) is %v, want 0", x, exp64(x))
		}
	}
	if exp64(0) != 1 || exp64(math.Copysign(0, -1)) != 1 {
		t.Error("exp64(0) is not 1")
	}
}

// modelLogits look like a model's output: most tokens are unlikely.
func modelLogits(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(3 * r.NormFloat64())
	}
	return logits
}

func TestChooseAllocatesNothing(t *testing.T) {
	call := choices.Call(choices.Case{Logits: modelLogits(1000), Choice: kernels.Choice{Temperature: 1, TopK: 50, TopP: 0.9, Penalty: 1.1, Uniform: 0.3}, Seen: []int{4, 5}})
	eachISA(t, "choose", func(t *testing.T, _ string, k kernels.Kernel) {
		if n := testing.AllocsPerRun(100, func() { k.Run(&call, 0, 1) }); n != 0 {
			t.Errorf("%v allocations per token", n)
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	logits := modelLogits(65_024)
	flat := make([]float32, len(logits)) // every token ties
	for _, c := range []choices.Case{
		{Name: "greedy", Logits: logits},
		{Name: "temperature", Logits: logits, Choice: kernels.Choice{Temperature: 0.8}},
		{Name: "topk", Logits: logits, Choice: kernels.Choice{Temperature: 0.8, TopK: 50}},
		{Name: "topp", Logits: logits, Choice: kernels.Choice{Temperature: 0.8, TopP: 0.95}},
		{Name: "topp-flat", Logits: flat, Choice: kernels.Choice{Temperature: 0.8, TopP: 0.95}},
		{Name: "all", Logits: logits, Choice: kernels.Choice{Temperature: 0.8, TopK: 50, TopP: 0.95, Penalty: 1.1}, Seen: []int{1, 2, 3, 60_000}},
	} {
		for name, set := range chooseSets {
			if name == "reference" {
				continue
			}
			b.Run(c.Name+"/"+name, func(b *testing.B) {
				c.Uniform = 0.5
				call := choices.Call(c)
				b.ReportAllocs()
				b.SetBytes(4 * int64(len(c.Logits)))
				for b.Loop() {
					set["choose"].Run(&call, 0, 1)
				}
			})
		}
	}
}
