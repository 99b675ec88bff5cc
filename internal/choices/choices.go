// Package choices has cases for the kernels that choose tokens, of all devices.
package choices

import (
	"math"
	"math/rand/v2"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// Case is a row of the operation choose, with what it must give.
type Case struct {
	Name   string
	Logits []float32
	kernels.Choice
	Seen []int
	Want int32
}

var (
	inf  = float32(math.Inf(1))
	nan  = float32(math.NaN())
	zero = float32(math.Copysign(0, -1))
)

// greedy makes a case without a temperature.
func greedy(name string, penalty float64, seen []int, want int32, logits ...float32) Case {
	return Case{name, logits, kernels.Choice{Penalty: penalty}, seen, want}
}

// drawn makes a case at temperature 1.
func drawn(name string, topK int, topP, uniform float64, want int32, logits ...float32) Case {
	return Case{name, logits, kernels.Choice{Temperature: 1, TopK: topK, TopP: topP, Uniform: uniform}, nil, want}
}

// almost1 is the largest random number.
const almost1 = 1 - 0x1p-48

// Golden are cases that can be worked out by hand.
var Golden = []Case{
	greedy("one token", 0, nil, 0, -5),
	greedy("the lowest of equal ones", 0, nil, 1, 1, 3, 2, 3),
	greedy("excluded tokens", 0, nil, 1, -inf, -2, -inf),
	greedy("zeros are equal", 0, nil, 0, zero, 0),
	greedy("at the first of 31", 0, nil, 0, at(31, 0)...),
	greedy("at the last of 32", 0, nil, 31, at(32, 31)...),
	greedy("at the last of 33", 0, nil, 32, at(33, 32)...),
	greedy("beyond a block", 0, nil, 1500, at(1501, 1500)...),
	greedy("beyond four of a block", 0, nil, 4099, at(4100, 4099)...),
	greedy("none is left", 0, nil, graph.NoToken, -inf, -inf),
	greedy("not a number", 0, nil, graph.BrokenLogits, 1, nan, 2),
	greedy("not a number, late", 0, nil, graph.BrokenLogits, append(make([]float32, 1500), nan)...),
	greedy("infinite", 0, nil, graph.BrokenLogits, 1, inf),
	greedy("broken before none is left", 0, nil, graph.BrokenLogits, -inf, nan),
	greedy("broken where it was seen", 2, []int{1}, graph.BrokenLogits, 1, inf),

	greedy("a penalty on the best", 1.2, []int{1}, 3, 1, 3, 2, 3),
	greedy("a penalty that is not enough", 1.2, []int{1}, 1, 1, 4, 2, 3),
	greedy("a penalty below 0", 3, []int{0}, 1, -1, -2),
	greedy("a penalty that favours", 0.25, []int{0}, 0, 1, 2),
	greedy("a penalty that is off", 1, []int{0}, 0, 2, 1),
	greedy("a penalty that overflows", 1e-300, []int{0}, 0, math.MaxFloat32, 1),
	greedy("a penalty makes no infinity", 1e-300, []int{1}, 0, math.MaxFloat32, 1),
	greedy("a penalty makes no negative infinity", math.MaxFloat64, []int{0}, 0, -2),
	greedy("a penalty never excludes", math.MaxFloat64, []int{0}, 0, -1, -inf),
	greedy("a penalty leaves what is excluded", 2, []int{0}, 1, -inf, -3),
	greedy("a penalty down to 0", math.MaxFloat64, []int{0, 1, 2}, 0, 0, -1, 5e-45),
	greedy("a penalty on the last bit of a word", 8, []int{31}, 0, at(40, 31)...),
	greedy("a penalty on the first bit of the next", 8, []int{32}, 0, at(40, 32)...),
	greedy("a penalty beside it", 8, []int{31, 33}, 32, at(40, 32)...),
	greedy("a penalty beyond a block", 8, []int{1030}, 0, at(1031, 1030)...),

	drawn("the first", 0, 0, 0, 0, 1, 1, 1, 1),
	drawn("the last", 0, 0, almost1, 3, 1, 1, 1, 1),
	drawn("a quarter each", 0, 0, 0.4999, 1, 1, 1, 1, 1),
	drawn("a quarter each, at its end", 0, 0, 0.5, 2, 1, 1, 1, 1),
	drawn("before a border, beyond 24 bits", 0, 0, 1./3-1e-9, 0, 1, 1, 1),
	drawn("after it", 0, 0, 1./3+1e-9, 1, 1, 1, 1),
	drawn("excluded tokens are not drawn", 0, 0, almost1, 1, 1, 1, -inf, -inf),
	drawn("nor at 0", 0, 0, 0, 2, -inf, -inf, 1, 1),
	drawn("none is left to draw", 0, 0, 0.5, graph.NoToken, -inf),
	drawn("not a number to draw", 0, 0, 0.5, graph.BrokenLogits, 1, nan),

	drawn("top 1", 1, 0, almost1, 1, 1, 5, 3, 4),
	drawn("ties at the k-th stay", 2, 0, almost1, 3, 1, 1, 1, 1),
	drawn("ties at the first stay", 1, 0, almost1, 3, 1, 5, 3, 5, 3, -inf),
	drawn("ties at the third stay", 3, 0, almost1, 4, 1, 5, 3, 5, 3, -inf),
	drawn("k of all", 4, 0, almost1, 3, 1, 1, 1, 1),
	drawn("k beyond all", 9, 0, almost1, 3, 1, 1, 1, 1),
	drawn("k beyond those that are not excluded", 3, 0, almost1, 1, 1, 1, -inf, -inf),
	drawn("k after zeros of both signs", 1, 0, almost1, 1, zero, 0, -1),
	drawn("k that ends at a negative zero", 1, 0, 0, 0, zero, 0, -1),

	drawn("p of one of four", 0, 0.25, almost1, 0, 1, 1, 1, 1),
	drawn("p beyond one of four", 0, 0.2501, almost1, 1, 1, 1, 1, 1),
	drawn("p of two of four", 0, 0.5, almost1, 1, 1, 1, 1, 1),
	drawn("p of three of four", 0, 0.75, almost1, 2, 1, 1, 1, 1),
	drawn("p of next to nothing", 0, 1e-300, almost1, 1, 1, 5, 3, 5),
	drawn("p of 1", 0, 1, almost1, 3, 1, 1, 1, 1),
	drawn("p after k", 3, 0.01, almost1, 1, 1, 5, 3, 5, 3, -inf),
	drawn("p of ten that tie, before the best", 0, 0.003, almost1, 4150, at(4200, 4150)...),
	drawn("p takes the best first", 0, 0.9, almost1, 1, 0, 20, 0, 0),
	drawn("p that the best does not reach", 0, 0.9999, 0, 0, 0, 10, 0, 0),
	drawn("and the lowest of the others does", 0, 0.9999, almost1, 1, 0, 10, 0, 0),

	{"a cold draw", []float32{-math.MaxFloat32, 1, math.MaxFloat32}, kernels.Choice{Temperature: 1e-300, Uniform: almost1}, nil, 2},
	{"a hot draw", []float32{-3, 1, 9}, kernels.Choice{Temperature: math.MaxFloat64, Uniform: 0.2}, nil, 0},
	{"a hot draw of what is excluded and seen", []float32{0, -inf}, kernels.Choice{Temperature: math.MaxFloat64, Penalty: 2, Uniform: almost1}, []int{1}, 0},
	{"a penalty before top-k", []float32{4, 3}, kernels.Choice{Temperature: 1, TopK: 1, Penalty: 2, Uniform: almost1}, []int{0}, 1},

	{"a temperature below 0", []float32{1}, kernels.Choice{Temperature: -1}, nil, graph.BadChoice},
	{"a temperature that is none", []float32{1}, kernels.Choice{Temperature: math.NaN()}, nil, graph.BadChoice},
	{"k below 0", []float32{1}, kernels.Choice{TopK: -1}, nil, graph.BadChoice},
	{"p above 1", []float32{1}, kernels.Choice{TopP: 1.5}, nil, graph.BadChoice},
	{"p below 0", []float32{1}, kernels.Choice{TopP: -0.5}, nil, graph.BadChoice},
	{"a penalty that is negative", []float32{1}, kernels.Choice{Penalty: -2}, nil, graph.BadChoice},
	{"a random number of 1", []float32{1}, kernels.Choice{Temperature: 1, Uniform: 1}, nil, graph.BadChoice},
	{"a random number below 0", []float32{1}, kernels.Choice{Temperature: 1, Uniform: -0.5}, nil, graph.BadChoice},
	{"broken logits and a bad choice", []float32{nan}, kernels.Choice{TopP: 2}, nil, graph.BadChoice},
}

// at is n logits of 1 of which one is 2.
func at(n, best int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1
	}
	x[best] = 2
	return x
}

// Share is a row of which every token has a weight that is known: of equally spaced
// random numbers it gets as large a share.
type Share struct {
	Case
	Weights []float64
}

// Shares are such rows.
var Shares = []Share{
	{Case{Name: "plain", Logits: logs(1, 1, 2, 5, 8), Choice: kernels.Choice{Temperature: 1}}, []float64{1, 2, 5, 8}},
	{Case{Name: "hot", Logits: logs(1, 1, 4, 9), Choice: kernels.Choice{Temperature: 2}}, []float64{1, 2, 3}},
	{Case{Name: "cold", Logits: logs(1, 1, 2, 3), Choice: kernels.Choice{Temperature: 0.5}}, []float64{1, 4, 9}},
	{Case{Name: "top 2", Logits: logs(1, 3, 1, 5, 2), Choice: kernels.Choice{Temperature: 1, TopK: 2}}, []float64{3, 0, 5, 0}},
	{Case{Name: "top 2 of ties", Logits: logs(1, 3, 1, 5, 3), Choice: kernels.Choice{Temperature: 1, TopK: 2}}, []float64{3, 0, 5, 3}},
	{Case{Name: "p of 0.7", Logits: logs(1, 3, 1, 5, 1), Choice: kernels.Choice{Temperature: 1, TopP: 0.7}}, []float64{3, 0, 5, 0}},
	{Case{Name: "p among ties", Logits: logs(1, 2, 5, 2, 2), Choice: kernels.Choice{Temperature: 1, TopP: 0.75}}, []float64{2, 5, 2, 0}},
	{Case{Name: "p of what k left", Logits: logs(1, 3, 4, 1, 2), Choice: kernels.Choice{Temperature: 1, TopK: 2, TopP: 0.5}}, []float64{0, 1, 0, 0}},
	{Case{Name: "p before the temperature would differ", Logits: logs(1, 1, 4, 9), Choice: kernels.Choice{Temperature: 2, TopP: 0.6}}, []float64{0, 2, 3}},
	{Case{Name: "a penalty", Logits: logs(1, 1, 4, 16), Choice: kernels.Choice{Temperature: 1, Penalty: 2}, Seen: []int{2}}, []float64{1, 4, 4}},
	{Case{Name: "a penalty below 0", Logits: logs(1./64, 1, 4, 16), Choice: kernels.Choice{Temperature: 1, Penalty: 2}, Seen: []int{2}}, []float64{1, 4, 4}},
	{Case{Name: "nothing of what is excluded", Logits: []float32{-inf, 0, -inf, 0}, Choice: kernels.Choice{Temperature: 1}}, []float64{0, 1, 0, 1}},
}

// Borders are the random numbers off before and behind where the tokens' ranges end,
// but for the last one's.
func (s *Share) Borders(off float64) []Case {
	total, sum := 0.0, 0.0
	for _, w := range s.Weights {
		total += w
	}
	var out []Case
	add := func(uniform float64, id int) {
		c := s.Case
		c.Uniform, c.Want = uniform, int32(id)
		out = append(out, c)
	}
	for id, w := range s.Weights {
		if w == 0 {
			continue
		}
		if sum > 0 {
			add(sum/total+off, id)
		}
		if sum += w; sum < total {
			add(sum/total-off, id)
		}
	}
	return out
}

// logs are the logarithms of numbers times a factor.
func logs(factor float64, of ...float64) []float32 {
	out := make([]float32, len(of))
	for i, x := range of {
		out[i] = float32(math.Log(factor * x))
	}
	return out
}

// Call is cases as one call, on f32 logits that are all as long as the longest:
// those after a case's own are -Inf, which changes nothing.
func Call(cases ...Case) kernels.Call {
	v := 0
	for _, c := range cases {
		v = max(v, len(c.Logits))
	}
	rows, words := len(cases), graph.SeenWords(v)
	columns := graph.ChoiceType().Dims[1].Len()
	logits, choice := tensor(graph.F32, rows, v), tensor(graph.F32, rows, columns)
	seen, ids := tensor(graph.I32, rows, words), tensor(graph.I32, rows)
	for i, c := range cases {
		row := logits.Row(i)
		for j := copy(row, c.Logits); j < v; j++ {
			row[j] = -inf
		}
		c.Put(choice.Row(i))
		for _, id := range c.Seen {
			kernels.SetSeen(seen.RowOfInts(i), id)
		}
	}
	return kernels.Call{Args: []kernels.Tensor{logits, choice, seen}, Results: []kernels.Tensor{ids}}
}

func tensor(d graph.DType, dims ...int) kernels.Tensor {
	t := kernels.Tensor{DType: d, Dims: [graph.MaxRank]int{1, 1, 1, 1, 1, 1}, Cols: 1}
	copy(t.Dims[:], dims)
	for _, n := range dims[1:] {
		t.Cols *= n
	}
	t.Stride = t.Cols
	if n := dims[0] * t.Cols; d == graph.I32 {
		t.I32 = make([]int32, n)
	} else {
		t.F32 = make([]float32, n)
	}
	return t
}

// Draw draws a case of n tokens, without what it must give: ties, zeros of both
// signs, excluded tokens, now and then broken logits.
func Draw(r *rand.Rand, n int) Case {
	c := Case{Logits: make([]float32, n), Choice: DrawChoice(r)}
	for i := range c.Logits {
		c.Logits[i] = DrawLogit(r)
	}
	for range r.IntN(n + 1) {
		c.Seen = append(c.Seen, r.IntN(n))
	}
	if r.IntN(20) == 0 {
		c.Logits[r.IntN(n)] = []float32{nan, inf}[r.IntN(2)]
	}
	return c
}

// DrawChoice draws how a token is chosen.
func DrawChoice(r *rand.Rand) kernels.Choice {
	c := kernels.Choice{
		Temperature: []float64{0, 0.01, 0.7, 1, 3}[r.IntN(5)],
		Penalty:     []float64{0, 1, 0.5, 1.3, 100}[r.IntN(5)],
		Uniform:     []float64{0, almost1, r.Float64(), r.Float64(), r.Float64()}[r.IntN(5)],
	}
	if r.IntN(2) == 0 {
		c.TopK = 1 + r.IntN(12)
	}
	if r.IntN(2) == 0 {
		c.TopP = r.Float64()
	}
	return c
}

// DrawLogit draws a logit.
func DrawLogit(r *rand.Rand) float32 {
	switch r.IntN(8) {
	case 0:
		return -inf
	case 1, 2:
		return float32(r.IntN(3)) // ties
	case 3:
		return zero
	}
	return float32(4 * r.NormFloat64())
}
