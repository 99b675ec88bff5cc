package kernels

import (
	"errors"
	"math"

	"github.com/krait-ml/krait/graph"
)

// Choice says how a token is chosen from a row of logits: a row of the operand
// choice of the operation choose. The zero Choice takes the highest logit.
type Choice struct {
	Temperature float64 // divides the logits; 0: the highest wins, of equal ones the lowest id
	TopK        int     // 0: all
	TopP        float64 // 0 and 1: all
	Penalty     float64 // of repetition; 0 and 1: none
	Uniform     float64 // a random number of [0, 1), of which 48 bits count
}

// Put writes the choice to a row. Numbers are rounded to f32, those beyond its range
// to its largest and its smallest: what is not 0 stays so.
func (c Choice) Put(row []float32) {
	narrow := func(x float64) float32 {
		if x > 0 {
			x = max(math.SmallestNonzeroFloat32, min(x, math.MaxFloat32))
		}
		return float32(x)
	}
	row[graph.ChoiceTemperature] = narrow(c.Temperature)
	row[graph.ChoiceTopK] = float32(min(c.TopK, 1<<24)) // more tokens than there are
	row[graph.ChoiceTopP] = narrow(c.TopP)
	row[graph.ChoicePenalty] = narrow(c.Penalty)
	high := math.Floor(c.Uniform*0x1p24) * 0x1p-24
	row[graph.ChoiceUniform] = float32(high)
	row[graph.ChoiceUniformRest] = float32(math.Floor((c.Uniform-high)*0x1p48) * 0x1p-48)
}

// Rounded is the choice after it was put to a row, for a choice that is legal there.
func (c Choice) Rounded() Choice {
	row := make([]float32, graph.RowElems(graph.ChoiceType().Dims))
	c.Put(row)
	c, _ = ChoiceOf(&Tensor{DType: graph.F32, Cols: len(row), Stride: len(row), F32: row}, 0, 1<<24)
	return c
}

// ChoiceOf reads row i of the operand choice; ok says whether it is one that choose
// can follow. A top-k beyond n tokens is 0.
func ChoiceOf(t *Tensor, i, n int) (c Choice, ok bool) {
	at := func(column int) float64 {
		if t.DType == graph.F64 {
			return t.F64[i*t.Stride+column]
		}
		return float64(t.F32[i*t.Stride+column])
	}
	c = Choice{
		Temperature: at(graph.ChoiceTemperature),
		TopP:        at(graph.ChoiceTopP),
		Penalty:     at(graph.ChoicePenalty),
		Uniform:     at(graph.ChoiceUniform) + at(graph.ChoiceUniformRest),
	}
	k := at(graph.ChoiceTopK)
	if k < float64(n) {
		c.TopK = int(k)
	}
	from0 := func(x, to float64) bool { return x >= 0 && x <= to } // false for NaN
	ok = from0(c.Temperature, math.MaxFloat32) && k >= 0 && from0(c.TopP, 1) && from0(c.Penalty, math.MaxFloat32) && from0(c.Uniform, 1) && c.Uniform < 1
	return c, ok
}

// Token is what choose gave, or the error that it is.
func Token(id int32) (int, error) {
	switch id {
	case graph.BrokenLogits:
		return 0, errors.New("a logit is NaN or +Inf; the model's output is broken")
	case graph.NoToken:
		return 0, errors.New("all logits are -Inf; no token is left to choose")
	case graph.BadChoice:
		return 0, errors.New("no token can be chosen so: temperature and penalty must be numbers from 0 on, top-k from 0 on, top-p from 0 to 1, and the random number from 0 to below 1")
	}
	return int(id), nil
}

// Penalised is a score after a repetition penalty. It stays finite, so that an extreme
// penalty neither excludes a token nor breaks the logits; -Inf, which excludes one, stays.
func Penalised(score float32, penalty float64) float32 {
	x := float64(score)
	switch {
	case math.IsInf(x, -1):
		return score
	case x > 0:
		x /= penalty
	default:
		x *= penalty
	}
	return Finite(x)
}

// Finite is a score in f32, or the largest or the lowest of its range.
func Finite(score float64) float32 {
	return float32(max(-math.MaxFloat32, min(score, math.MaxFloat32)))
}

// Seen reports whether bit id of a row of the operand seen is set.
func Seen(row []int32, id int) bool { return row[id/32]>>(id%32)&1 != 0 }

// SetSeen sets it.
func SetSeen(row []int32, id int) { row[id/32] |= 1 << (id % 32) }

// RowOfInts is row i of an i32 tensor.
func (t *Tensor) RowOfInts(i int) []int32 {
	at := i * t.Stride
	return t.I32[at : at+t.Cols : at+t.Cols]
}
