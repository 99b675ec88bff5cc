package sampling

import "math"

// keepTopK makes the candidates: the tokens with the k highest scores and those
// that tie with the last of them. It works on scores before the temperature,
// which does not change their order.
func (s *Sampler) keepTopK() {
	n := len(s.scores)
	s.ids, s.keys, s.weights = s.ids[:n], s.keys[:n], s.weights[:n]
	for i, score := range s.scores {
		s.ids[i], s.keys[i] = int32(i), orderKey(score)
	}
	if s.cfg.TopK == 0 || s.cfg.TopK >= n {
		return
	}
	for i := range s.weights {
		s.weights[i] = 1
	}
	last, _ := threshold(s.keys, s.weights, float64(s.cfg.TopK))
	s.keep(func(i int) bool { return s.keys[i] >= last })
}

// weigh gives each candidate its probability, times a constant. Taking off the
// highest score first keeps the exponential in range at any temperature.
func (s *Sampler) weigh(highest float64) {
	s.mass = 0
	for i, id := range s.ids {
		w := exp((float64(s.scores[id]) - highest) / s.cfg.Temperature)
		s.weights[i] = w
		s.mass += w
	}
}

// keepTopP drops the candidates after the first ones whose probability, summed
// from the most probable one on, reaches p.
func (s *Sampler) keepTopP() {
	if s.cfg.TopP == 1 {
		return
	}
	goal := s.cfg.TopP * s.mass
	last, above := threshold(s.keys, s.weights, goal)
	s.mass = above
	s.keep(func(i int) bool {
		if s.keys[i] != last {
			return s.keys[i] > last
		}
		// Of those that tie, as many as it takes to reach the goal, at least one.
		if s.mass >= goal {
			return false
		}
		s.mass += s.weights[i]
		return true
	})
}

// draw chooses a candidate with a probability proportional to its weight.
func (s *Sampler) draw() int {
	u := s.rng.Float64() * s.mass
	chosen := -1
	for i, w := range s.weights {
		if w == 0 {
			continue
		}
		chosen = i // the last one stays when rounding leaves some of u
		if u -= w; u < 0 {
			break
		}
	}
	return int(s.ids[chosen])
}

// keep drops the candidates, given by their position, that ok refuses.
func (s *Sampler) keep(ok func(i int) bool) {
	n := 0
	for i := range s.ids {
		if ok(i) {
			s.ids[n], s.keys[n], s.weights[n] = s.ids[i], s.keys[i], s.weights[i]
			n++
		}
	}
	s.ids, s.keys, s.weights = s.ids[:n], s.keys[:n], s.weights[:n]
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
