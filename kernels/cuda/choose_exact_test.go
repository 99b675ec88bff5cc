package cuda

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/choices"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// The model of how choose draws: the same whole numbers, found by sorting the row. A
// token's weight is the number of 2^-40 of the best one's, rounded down.

func modelScore(x float32, seen bool, penalty float32) float32 {
	if !seen || penalty == 0 || penalty == 1 || x < -math.MaxFloat32 {
		return x
	}
	if x > 0 {
		x /= penalty
	} else {
		x *= penalty
	}
	return max(-math.MaxFloat32, min(x, math.MaxFloat32))
}

func modelWeight(score, best, rate float32) uint64 {
	if score == best {
		return 1 << 40
	}
	if score < -math.MaxFloat32 {
		return 0
	}
	return uint64(float32(math.Exp2(float64((score-best)*rate))) * 0x1p40)
}

// modelChoose is what choose gives for a row, of which how is the row of choices.
func modelChoose(logits, how []float32, seen []int32) int32 {
	t := kernels.Tensor{DType: graph.F32, Cols: len(how), Stride: len(how), F32: how}
	if _, ok := kernels.ChoiceOf(&t, 0, len(logits)); !ok {
		return graph.BadChoice
	}
	temperature, topK, topP := how[graph.ChoiceTemperature], how[graph.ChoiceTopK], how[graph.ChoiceTopP]
	scores := make([]float32, len(logits))
	var order []int // of tokens that are not excluded, best first
	for i, x := range logits {
		if !(x <= math.MaxFloat32) {
			return graph.BrokenLogits
		}
		scores[i] = modelScore(x, kernels.Seen(seen, i), how[graph.ChoicePenalty])
		if x >= -math.MaxFloat32 {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return graph.NoToken
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	best := scores[order[0]]
	if temperature == 0 {
		return int32(order[0])
	}
	rate := float32(1.4426950408889634 / float64(temperature))
	if k := int(min(topK, 1<<24)); k >= 1 && k < len(order) {
		least := scores[order[k-1]]
		for k < len(order) && scores[order[k]] == least {
			k++
		}
		order = order[:k]
	}
	weights, mass := make([]uint64, len(logits)), uint64(0)
	for _, i := range order {
		weights[i] = modelWeight(scores[i], best, rate)
		mass += weights[i]
	}
	if topP > 0 && topP < 1 {
		order, mass = modelTopP(order, weights, uint64(math.Ceil(float64(topP)*float64(mass))))
	}
	drawn := min(mass-1, uint64((float64(how[graph.ChoiceUniform])+float64(how[graph.ChoiceUniformRest]))*float64(mass)))
	slices.Sort(order)
	for _, i := range order {
		if drawn < weights[i] {
			return int32(i)
		}
		drawn -= weights[i]
	}
	panic("BUG: nothing is drawn")
}

// modelTopP keeps the first tokens whose weights reach the goal.
func modelTopP(order []int, weights []uint64, goal uint64) ([]int, uint64) {
	mass := uint64(0)
	for n, i := range order {
		if mass += weights[i]; mass >= goal {
			return order[:n+1], mass
		}
	}
	panic("BUG: the goal is not reached")
}

// exactly runs cases in one batch, and holds each against the model.
func exactly(t *testing.T, r *rand.Rand, cases []choices.Case) {
	t.Helper()
	dev, op, c := newDevice(t), findOp(t, "choose"), choices.Call(cases...)
	on := dev.deviceCall(op, &c, nil, func() int { return 0 })
	dev.compute(op, on, r.Uint64())
	dev.download(on.Results[0], &c.Results[0])
	asModelled(t, &c, cases)
}

func asModelled(t *testing.T, c *kernels.Call, cases []choices.Case) {
	t.Helper()
	for i, got := range c.Results[0].I32 {
		want := modelChoose(c.Args[0].Row(i), c.Args[1].Row(i), c.Args[2].RowOfInts(i))
		if got == want {
			continue
		}
		choice, ok := kernels.ChoiceOf(&c.Args[1], i, c.Args[0].Cols)
		t.Errorf("row %d of %d, %s, by %+v (%t): chose %d, want %d", i, len(cases), cases[i].Name, choice, ok, got, want)
	}
}

// rowKinds are distributions of logits: each finds another way through the kernels.
var rowKinds = []struct {
	name string
	at   func(r *rand.Rand, i, n int) float32
}{
	{"normal", func(r *rand.Rand, _, _ int) float32 { return float32(3 * r.NormFloat64()) }},
	{"narrow", func(r *rand.Rand, _, _ int) float32 { return 1 + float32(r.IntN(64))*0x1p-23 }},
	{"equal", func(*rand.Rand, int, int) float32 { return -2.5 }},
	{"few values", func(r *rand.Rand, _, _ int) float32 { return float32(r.IntN(3)) }},
	{"zeros", func(r *rand.Rand, _, _ int) float32 { return float32(math.Copysign(0, r.Float64()-0.5)) }},
	{"rising", func(_ *rand.Rand, i, n int) float32 { return 9 * float32(i) / float32(n) }},
	{"falling", func(_ *rand.Rand, i, n int) float32 { return -9 * float32(i) / float32(n) }},
	{"mostly excluded", func(r *rand.Rand, _, _ int) float32 {
		if r.IntN(9) > 0 {
			return float32(math.Inf(-1))
		}
		return float32(r.NormFloat64())
	}},
	{"all magnitudes", func(r *rand.Rand, _, _ int) float32 { // but for NaN and infinities
		return math.Float32frombits(r.Uint32() &^ (1 << 30))
	}},
	{"one far below", func(r *rand.Rand, i, n int) float32 { // so that all others are in one bin
		if i == n/2 {
			return -math.MaxFloat32
		}
		return float32(r.NormFloat64())
	}},
	{"peak", func(r *rand.Rand, i, n int) float32 {
		if i == n-1 {
			return 50
		}
		return float32(r.NormFloat64())
	}},
}

// rowOf is n logits of a kind.
func rowOf(r *rand.Rand, kind, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rowKinds[kind].at(r, i, n)
	}
	return x
}

// hardChoice draws a choice, of which more is extreme than in [choices.DrawChoice].
func hardChoice(r *rand.Rand, n int) kernels.Choice {
	c := kernels.Choice{
		Temperature: []float64{1, 0.7, 1.3, 0.05, 1e-30, 100, 1e30, 1e300}[r.IntN(8)],
		Penalty:     []float64{0, 1, 1.2, 0.5, 1e300}[r.IntN(5)],
		Uniform:     []float64{0, 1 - 0x1p-48, r.Float64(), r.Float64(), r.Float64(), r.Float64()}[r.IntN(6)],
	}
	if r.IntN(3) > 0 {
		c.TopK = []int{1, 2, 40, 1 + r.IntN(n), max(1, n-1), n, n + 1}[r.IntN(7)]
	}
	if r.IntN(3) > 0 {
		c.TopP = []float64{1e-300, 0.1, 0.5, 0.9, 0.999, 1 - 0x1p-24, r.Float64()}[r.IntN(7)]
	}
	return c
}

// hardCase draws a row of n tokens: of a kind, now and then broken, without tokens,
// with a choice that is not legal, or greedy.
func hardCase(r *rand.Rand, kind, n int) choices.Case {
	c := choices.Case{Name: fmt.Sprintf("%d tokens, %s", n, rowKinds[kind].name), Logits: rowOf(r, kind, n), Choice: hardChoice(r, n)}
	for range r.IntN(9) {
		c.Seen = append(c.Seen, r.IntN(n))
	}
	switch r.IntN(12) {
	case 0:
		c.Temperature = 0
	case 1:
		c.Logits[r.IntN(n)] = float32(math.NaN())
	case 2:
		c.Logits[n-1] = float32(math.Inf(1))
	case 3:
		for i := range c.Logits {
			c.Logits[i] = float32(math.Inf(-1))
		}
	case 4:
		c.TopP = 2
	}
	return c
}

// exactSizes are around what threads, blocks and pieces have of a row.
var exactSizes = []int{1, 2, 3, 31, 33, 127, 255, 256, 257, 511, 513, 1021, 1024, 1025, 2047, 2048, 2049, 4097, 8191, 16411}

// TestChooseExact: tokens are those of the model, whatever lies in a row and however it is
// to be chosen from, beside rows that are chosen from otherwise.
func TestChooseExact(t *testing.T) {
	exactOnly(t)
	r := newRand(7)
	for _, n := range exactSizes {
		var cases []choices.Case
		for range some(1, 3) {
			cases = append(cases, hardCase(r, r.IntN(len(rowKinds)), n))
		}
		exactly(t, r, cases)
	}
	few := goldens.Few(t)
	for kind := range rowKinds {
		for i, n := range []int{40, 700} {
			if few && (kind+i)%2 == 0 {
				continue
			}
			var cases []choices.Case
			for range some(3, 8) {
				cases = append(cases, hardCase(r, kind, n+r.IntN(50)))
			}
			exactly(t, r, cases)
		}
	}
}

func exactOnly(t *testing.T) {
	if onDevice == "cuda" {
		t.Skip("2^x of a GPU may differ from the model's in its last bit; TestChooseGolden and the others allow for it")
	}
}

// TestChooseLong: rows as long as the largest vocabularies, by as many blocks as there are
// and by as few as a batch leaves.
func TestChooseLong(t *testing.T) {
	goldens.CI(t)
	exactOnly(t)
	r := newRand(8)
	row := func(n int, how kernels.Choice) choices.Case {
		return choices.Case{Name: fmt.Sprint(n, " tokens"), Logits: rowOf(r, 0, n), Choice: how, Seen: []int{3, n / 2}}
	}
	exactly(t, r, []choices.Case{row(some(66000, 262144), kernels.Choice{Temperature: 0.8, TopK: 50, TopP: 0.9, Penalty: 1.1, Uniform: 0.97})})
	if goldens.Few(t) {
		return
	}
	exactly(t, r, []choices.Case{row(some(32767, 131071), kernels.Choice{Temperature: 1.5, TopP: 0.95, Uniform: 0.6})})
	var cases []choices.Case
	for i := range 70 {
		cases = append(cases, choices.Case{Logits: rowOf(r, 0, 100), Choice: kernels.Choice{Temperature: float64(i % 3), TopK: 5 * (i % 4), Uniform: r.Float64()}})
	}
	cases[66] = row(4099, kernels.Choice{Temperature: 1, TopK: 600, TopP: 0.99, Uniform: 0.5})
	exactly(t, r, cases)
}

// TestChooseUnlisted: rows of which more tokens are where top-k or top-p ends than a list
// has room for, by how far one token is from all others, or as many are equal.
func TestChooseUnlisted(t *testing.T) {
	goldens.CI(t)
	exactOnly(t)
	r, few := newRand(9), goldens.Few(t)
	for kind := range rowKinds {
		if name := rowKinds[kind].name; name != "one far below" && name != "equal" && name != "few values" {
			continue
		}
		for i, how := range []kernels.Choice{{TopK: 700}, {TopK: 4900, TopP: 0.7}, {TopP: 0.1}, {TopP: 0.9999}, {TopK: 1}} {
			if few && (kind%4+i)%3 != 0 { // of kinds 2, 3 and 9: each choice once
				continue
			}
			how.Temperature, how.Uniform = 200, r.Float64()
			exactly(t, r, []choices.Case{{Name: rowKinds[kind].name, Logits: rowOf(r, kind, 5003), Choice: how}})
		}
	}
}

// TestChoosePieces: rows so long that pieces are, too, whose weights add up in several goes.
func TestChoosePieces(t *testing.T) {
	exactOnly(t)
	defer func(most int) { mostChoicePieces = most }(mostChoicePieces)
	mostChoicePieces = 2
	r := newRand(10)
	for kind := range rowKinds {
		exactly(t, r, []choices.Case{hardCase(r, kind, 9001)})
	}
	for _, topP := range []float64{0, 0.9} {
		exactly(t, r, []choices.Case{{Name: "equal", Logits: make([]float32, 9001), Choice: kernels.Choice{Temperature: 1, TopP: topP, Uniform: 0.9}}})
	}
}

// TestChooseReplay: what was launched for one batch serves others, whose rows want other
// things; what the scratch holds from before does not matter.
func TestChooseReplay(t *testing.T) {
	exactOnly(t)
	r := newRand(11)
	const rows, n = 3, 1300
	dev, op := newDevice(t), findOp(t, "choose")
	var on *Call
	var launches []Launch
	for turn := range 8 {
		var cases []choices.Case
		for range rows {
			c := hardCase(r, r.IntN(len(rowKinds)), n)
			if turn == 0 {
				c.Temperature, c.TopP = 0, 0
			}
			cases = append(cases, c)
		}
		c := choices.Call(cases...)
		if on == nil {
			on = dev.deviceCall(op, &c, nil, func() int { return 0 })
			launches = dev.plan(op, on)
		} else {
			for i := range c.Args {
				dev.write(on.Args[i], &c.Args[i])
			}
		}
		dev.run(launches, r.Uint64())
		dev.download(on.Results[0], &c.Results[0])
		asModelled(t, &c, cases)
	}
}

// TestChooseLaunches: how many there are, and of how many blocks, depends on the sizes
// of a batch alone, and rows are cut into at most as many pieces as their sums have room for.
func TestChooseLaunches(t *testing.T) {
	for _, c := range []struct{ rows, n, pieces, piece int }{
		{1, 1, 1, 256}, {1, 256, 1, 256}, {1, 257, 2, 256}, {1, 50280, 197, 256}, {1, 128256, 251, 512}, {1, 262144, 256, 1024},
		{8, 128256, 63, 2048}, {1000, 128256, 63, 2048}, {1, 1 << 20, 512, 2048}, {1, 1<<20 + 1, 456, 2304}, {3, 1 << 24, 512, 1 << 15},
	} {
		logits, ids := shaped(graph.F32, c.rows, c.n), shaped(graph.I32, c.rows)
		on := &Call{Args: []Tensor{{Tensor: logits}, {Tensor: shaped(graph.F32, c.rows, 6)}, {Tensor: shaped(graph.I32, c.rows, graph.SeenWords(c.n))}}, Results: []Tensor{{Tensor: ids}}}
		list, err := Kernels["choose"].Launches(on)
		if err != nil || len(list) != 3 {
			t.Fatal(list, err)
		}
		for _, l := range list {
			if piece := choicePiece(c.rows, c.n); l.Grid != [3]uint32{uint32(c.rows), uint32(c.pieces), 1} || piece != c.piece {
				t.Errorf("%d rows of %d tokens: %v blocks, of %d tokens, want %d of %d", c.rows, c.n, l.Grid, piece, c.pieces, c.piece)
			}
		}
	}
}
