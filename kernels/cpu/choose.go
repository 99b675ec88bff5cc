package cpu

import (
	"math"
	"math/bits"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{"choose": {Units: kernels.RowUnits, Run: choose}})

// choose takes a token of each row, or says why there is none.
func choose(c *kernels.Call, lo, hi int) {
	logits := &c.Args[0]
	for i := lo; i < hi; i++ {
		id := int32(graph.BadChoice)
		if choice, ok := kernels.ChoiceOf(&c.Args[1], i, logits.Cols); ok {
			id = Choose(logits.Row(i), choice, c.Args[2].RowOfInts(i))
		}
		c.Results[0].I32[i] = id
	}
}

// Choose takes a token of a row of logits, as the operation choose does.
func Choose(logits []float32, c kernels.Choice, seen []int32) int32 {
	best := highest(logits)
	penalised := c.Penalty != 0 && c.Penalty != 1
	if best < 0 || c.Temperature == 0 && !penalised {
		return best
	}
	ch := choosers.Get().(*chooser)
	defer choosers.Put(ch)
	ch.reset(logits, c)
	if penalised {
		ch.penalise(seen)
		best = highest(ch.scores)
	}
	if c.Temperature == 0 {
		return best
	}
	ch.keepTopK()
	ch.weigh(float64(ch.scores[best]))
	ch.keepTopP()
	return ch.draw()
}

// highest is the first of the highest scores, or why there is none.
func highest(scores []float32) int32 {
	best, at := float32(math.Inf(-1)), graph.NoToken
	for i, x := range scores {
		if !(x <= math.MaxFloat32) {
			return graph.BrokenLogits
		}
		if x > best {
			best, at = x, i
		}
	}
	return int32(at)
}

// chooser is what a row takes to choose at random. Of ids, keys and weights the
// entries belong together: one per token that is still a candidate, in rising order
// of ids.
type chooser struct {
	kernels.Choice
	scores  []float32 // logits after the penalty
	ids     []int32
	keys    []uint32  // in the order of the scores
	weights []float64 // probabilities, times mass
	mass    float64   // the sum of weights
}

// choosers keep their memory, so that decoding allocates nothing.
var choosers = sync.Pool{New: func() any { return new(chooser) }}

// reset begins a row.
func (ch *chooser) reset(logits []float32, c kernels.Choice) {
	ch.Choice = c
	ch.scores = append(ch.scores[:0], logits...)
	if n := len(logits); cap(ch.ids) < n {
		ch.ids, ch.keys, ch.weights = make([]int32, n), make([]uint32, n), make([]float64, n)
	}
}

// penalise applies the penalty to the tokens seen. Results stay finite, so that an
// extreme penalty neither excludes a token nor breaks the logits.
func (ch *chooser) penalise(seen []int32) {
	for word, set := range seen {
		for rest := uint32(set); rest != 0; rest &= rest - 1 {
			id := 32*word + bits.TrailingZeros32(rest)
			if id >= len(ch.scores) {
				break
			}
			x := float64(ch.scores[id])
			switch {
			case math.IsInf(x, -1): // excluded by the caller
				continue
			case x > 0:
				x /= ch.Penalty
			default:
				x *= ch.Penalty
			}
			ch.scores[id] = float32(max(-math.MaxFloat32, min(x, math.MaxFloat32)))
		}
	}
}

// keepTopK makes the candidates: the tokens with the k highest scores and those
// that tie with the last of them. It works on scores before the temperature,
// which does not change their order.
func (ch *chooser) keepTopK() {
	n := len(ch.scores)
	ch.ids, ch.keys, ch.weights = ch.ids[:n], ch.keys[:n], ch.weights[:n]
	for i, score := range ch.scores {
		ch.ids[i], ch.keys[i] = int32(i), orderKey(score)
	}
	if ch.TopK == 0 || ch.TopK >= n {
		return
	}
	for i := range ch.weights {
		ch.weights[i] = 1
	}
	last, _ := threshold(ch.keys, ch.weights, float64(ch.TopK))
	ch.keep(func(i int) bool { return ch.keys[i] >= last })
}

// weigh gives each candidate its probability, times a constant. Taking off the
// highest score first keeps the exponential in range at any temperature.
func (ch *chooser) weigh(highest float64) {
	ch.mass = 0
	for i, id := range ch.ids {
		w := exp64((float64(ch.scores[id]) - highest) / ch.Temperature)
		ch.weights[i] = w
		ch.mass += w
	}
}

// keepTopP drops the candidates after the first ones whose probability, summed
// from the most probable one on, reaches p.
func (ch *chooser) keepTopP() {
	if ch.TopP == 0 || ch.TopP == 1 {
		return
	}
	goal := ch.TopP * ch.mass
	last, above := threshold(ch.keys, ch.weights, goal)
	ch.mass = above
	ch.keep(func(i int) bool {
		if ch.keys[i] != last {
			return ch.keys[i] > last
		}
		// Of those that tie, as many as it takes to reach the goal, at least one.
		if ch.mass >= goal {
			return false
		}
		ch.mass += ch.weights[i]
		return true
	})
}

// draw chooses a candidate with a probability proportional to its weight.
func (ch *chooser) draw() int32 {
	u := ch.Uniform * ch.mass
	chosen := -1
	for i, w := range ch.weights {
		if w == 0 {
			continue
		}
		chosen = i // the last one stays when rounding leaves some of u
		if u -= w; u < 0 {
			break
		}
	}
	return ch.ids[chosen]
}

// keep drops the candidates, given by their position, that ok refuses.
func (ch *chooser) keep(ok func(i int) bool) {
	n := 0
	for i := range ch.ids {
		if ok(i) {
			ch.ids[n], ch.keys[n], ch.weights[n] = ch.ids[i], ch.keys[i], ch.weights[i]
			n++
		}
	}
	ch.ids, ch.keys, ch.weights = ch.ids[:n], ch.keys[:n], ch.weights[:n]
}

// orderKey maps scores to integers in the same order.
func orderKey(score float32) uint32 {
	if score == 0 {
		score = 0 // -0 equals 0
	}
	bits := math.Float32bits(score)
	if bits>>31 != 0 {
		return ^bits // negative: a larger magnitude is less
	}
	return bits | 1<<31
}

// digitBits is the size of the digits in which threshold takes a key apart.
const digitBits = 11

// threshold returns the highest key such that the weights of all keys at or
// above it sum to at least goal, and the sum of those above it. It finds the
// key's digits one after the other, highest first (a radix select), which takes
// time linear in the number of keys, whatever they are.
func threshold(keys []uint32, weights []float64, goal float64) (key uint32, above float64) {
	var known uint32 // mask of the digits that are found
	for shift := 32; shift > 0; {
		shift = max(0, shift-digitBits)
		mask := ^known >> shift
		var sums [1 << digitBits]float64
		for i, k := range keys {
			if k&known == key {
				sums[k>>shift&mask] += weights[i]
			}
		}
		// Rounding may keep the sum below the goal; digit 0 then takes them all.
		digit := mask
		for ; digit > 0 && above+sums[digit] < goal; digit-- {
			above += sums[digit]
		}
		key |= digit << shift
		known |= mask << shift
	}
	return key, above
}
