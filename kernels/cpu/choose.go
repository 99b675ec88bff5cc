package cpu

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{"choose": {Units: kernels.RowUnits, Run: plainChoosing.choose}})

// choosing is what reads all scores: maxima finds the highest of each scoreBlock of them,
// and says whether any is not a number or infinite; weigh makes probabilities of scores
// that are at most the highest, times the sum that it returns.
type choosing struct {
	maxima func(scores, highest []float32) (broken bool)
	weigh  func(weights []float64, scores []float32, highest, temperature float64) (mass float64)
}

var plainChoosing = choosing{maxima, weigh}

const scoreBlock = 32

// choose takes a token of each row, or says why there is none.
func (m *choosing) choose(c *kernels.Call, lo, hi int) {
	logits := &c.Args[0]
	ch := choosers.Get().(*chooser)
	defer choosers.Put(ch)
	for i := lo; i < hi; i++ {
		id := int32(graph.BadChoice)
		if choice, ok := kernels.ChoiceOf(&c.Args[1], i, logits.Cols); ok {
			id = ch.choose(m, logits.Row(i), choice, c.Args[2].RowOfInts(i))
		}
		c.Results[0].I32[i] = id
	}
}

// Choose takes a token of a row of logits, as the operation choose does.
func Choose(logits []float32, c kernels.Choice, seen []int32) int32 {
	ch := choosers.Get().(*chooser)
	defer choosers.Put(ch)
	return ch.choose(&plainChoosing, logits, c, seen)
}

// ChooseAllowed takes the token with the highest logit of those whose bit is set, of equal ones the
// lowest id. None of the logits is NaN or +Inf.
func ChooseAllowed(logits []float32, allowed []int32) int32 {
	ch := choosers.Get().(*chooser)
	defer choosers.Put(ch)
	if best := ch.best(fastest(), logits); best < 0 || kernels.Seen(allowed, int(best)) {
		return best
	}
	best, at := float32(math.Inf(-1)), int32(graph.NoToken)
	for i, highest := range ch.highest { // a word of bits has as many tokens as a block
		for rest := uint32(allowed[i]); rest != 0 && highest > best; rest &= rest - 1 {
			id := i*scoreBlock + bits.TrailingZeros32(rest)
			if id < len(logits) && logits[id] > best {
				best, at = logits[id], int32(id)
			}
		}
	}
	return at
}

// ChooseAdjusted takes a token of a row of logits, whose scores adjust has changed in its
// own copy: to -Inf for tokens that are not to be chosen. None of the logits is NaN or +Inf. After
// top-p it keeps the tokens whose probability is at least minP times the highest. The penalty of c
// does nothing here. It gives what the operation choose gives where adjust changes nothing and minP
// is 0.
func ChooseAdjusted(logits []float32, c kernels.Choice, minP float64, adjust func(scores []float32)) int32 {
	ch, m := choosers.Get().(*chooser), fastest()
	defer choosers.Put(ch)
	ch.reset(logits, c)
	adjust(ch.scores)
	best := ch.best(m, ch.scores)
	if best < 0 || c.Temperature == 0 {
		return best
	}
	return ch.sample(m, best, minP)
}

// LogSum is the natural logarithm of the sum of the exponentials of a row of logits, of
// which at least one is a number and none is NaN or +Inf.
func LogSum(logits []float32) float64 {
	ch, m := choosers.Get().(*chooser), fastest()
	defer choosers.Put(ch)
	ch.reset(logits, kernels.Choice{})
	highest := float64(logits[ch.best(m, logits)])
	return highest + math.Log(m.weigh(ch.weights[:len(logits)], ch.scores, highest, 1))
}

// fastest is what the kernels of [Chosen] choose with.
var fastest = sync.OnceValue(func() *choosing {
	if name, err := ChosenISA(); err != nil || name == plain {
		return &plainChoosing
	}
	return vectorChoosing
})

// choose takes a token of a row of logits.
func (ch *chooser) choose(m *choosing, logits []float32, c kernels.Choice, seen []int32) int32 {
	best := ch.best(m, logits)
	penalised := c.Penalty != 0 && c.Penalty != 1
	if best < 0 || c.Temperature == 0 && !penalised {
		return best
	}
	ch.reset(logits, c)
	if penalised {
		ch.penalise(seen)
		best = ch.best(m, ch.scores)
	}
	if c.Temperature == 0 {
		return best
	}
	return ch.sample(m, best, 0)
}

// sample draws one of the tokens that the filters keep.
func (ch *chooser) sample(m *choosing, best int32, minP float64) int32 {
	ch.keepTopK()
	ch.weigh(m, float64(ch.scores[best]))
	ch.keepTopP()
	ch.keepMinP(minP)
	return ch.draw()
}

// best is the first of the highest scores, or why there is none.
func (ch *chooser) best(m *choosing, scores []float32) int32 {
	sized(&ch.highest, (len(scores)+scoreBlock-1)/scoreBlock)
	if m.maxima(scores, ch.highest) {
		return graph.BrokenLogits
	}
	best, at := float32(math.Inf(-1)), -1
	for i, x := range ch.highest {
		if x > best {
			best, at = x, i
		}
	}
	if at < 0 {
		return graph.NoToken
	}
	at *= scoreBlock
	return int32(at + slices.Index(scores[at:], best))
}

func maxima(scores, highest []float32) (broken bool) {
	for i := range highest {
		best := float32(math.Inf(-1))
		for _, x := range scores[i*scoreBlock : min((i+1)*scoreBlock, len(scores))] {
			if !(x <= math.MaxFloat32) {
				return true
			}
			if x > best {
				best = x
			}
		}
		highest[i] = best
	}
	return false
}

// chooser is what a row takes to choose at random. Of ids, keys and weights the entries belong
// together: one per token that is still a candidate, in rising order of ids.
type chooser struct {
	kernels.Choice
	highest []float32 // of blocks of scores
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
			ch.scores[id] = kernels.Penalised(ch.scores[id], ch.Penalty)
		}
	}
}

// keepTopK makes the candidates: the tokens with the k highest scores above -Inf and those that tie
// with the last of them. It works on scores before the temperature, which does not change their
// order.
func (ch *chooser) keepTopK() {
	all := ch.TopK == 0 || ch.TopK >= len(ch.scores)
	ch.candidates(max(lowest, ch.least(all)))
	if all || len(ch.ids) <= ch.TopK {
		return
	}
	last := ch.last(ch.keys)
	ch.keep(func(i int) bool { return ch.keys[i] >= last })
}

// last is the lowest of the k highest keys.
func (ch *chooser) last(keys []uint32) uint32 {
	ch.weights = ch.weights[:len(keys)]
	for i := range ch.weights {
		ch.weights[i] = 1
	}
	last, _ := threshold(keys, ch.weights, float64(ch.TopK))
	return last
}

// least is a key that none of the k highest is below: as many blocks have a score that
// high, if there are as many.
func (ch *chooser) least(all bool) uint32 {
	if all || ch.TopK > len(ch.highest) {
		return 0
	}
	ch.keys = ch.keys[:len(ch.highest)]
	for i, x := range ch.highest {
		ch.keys[i] = orderKey(x)
	}
	return ch.last(ch.keys)
}

// candidates takes the tokens whose keys are at least that.
func (ch *chooser) candidates(least uint32) {
	ch.ids, ch.keys = ch.ids[:0], ch.keys[:0]
	for i, x := range ch.highest {
		if orderKey(x) < least {
			continue
		}
		from := i * scoreBlock
		for j, score := range ch.scores[from:min(from+scoreBlock, len(ch.scores))] {
			if key := orderKey(score); key >= least {
				ch.ids, ch.keys = append(ch.ids, int32(from+j)), append(ch.keys, key)
			}
		}
	}
	ch.weights = ch.weights[:len(ch.ids)]
}

// weigh gives each candidate its probability, times a constant.
func (ch *chooser) weigh(m *choosing, highest float64) {
	scores := ch.scores
	if len(ch.ids) < len(scores) {
		for i, id := range ch.ids {
			scores[i] = scores[id] // ids rise
		}
		scores = scores[:len(ch.ids)]
	}
	ch.mass = m.weigh(ch.weights, scores, highest, ch.Temperature)
}

// weigh: taking off the highest score first keeps the exponential in range at any temperature.
func weigh(weights []float64, scores []float32, highest, temperature float64) (mass float64) {
	for i, score := range scores {
		w := exp64((float64(score) - highest) / temperature)
		weights[i] = w
		mass += w
	}
	return mass
}

// keepTopP drops the candidates after the first ones whose probability, summed
// from the most probable one on, reaches p.
func (ch *chooser) keepTopP() {
	if ch.TopP == 0 || ch.TopP == 1 {
		return
	}
	goal := ch.TopP * ch.mass
	// All that are so unlikely make less than half of what is beyond the goal.
	least := (1 - ch.TopP) * ch.mass / float64(2*len(ch.ids))
	ch.keep(func(i int) bool { return ch.weights[i] >= least })
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

// keepMinP drops the candidates whose probability is below p times the highest, which weighs 1.
func (ch *chooser) keepMinP(p float64) {
	if p == 0 {
		return
	}
	ch.keep(func(i int) bool { return ch.weights[i] >= p })
	ch.mass = 0
	for _, w := range ch.weights {
		ch.mass += w
	}
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

// lowest is the key of the lowest score above -Inf.
var lowest = orderKey(-math.MaxFloat32)

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

// threshold returns the highest key such that the weights of all keys at or above it sum to at
// least goal, and the sum of those above it. It finds the key's digits one after the other, highest
// first (a radix select), which takes time linear in the number of keys, whatever they are.
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
