package prefix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// heavyTail draws requests whose lengths and popularity have heavy tails of one exponent.
type heavyTail struct {
	rng       *rand.Rand
	tail      float64
	next      int32 // the token that no text has
	documents []Tokens
}

func newHeavyTail(seed uint64, tail float64) *heavyTail {
	h := &heavyTail{rng: rand.New(rand.NewPCG(seed, 18)), tail: tail}
	for range 200 {
		h.documents = append(h.documents, h.text(1000))
	}
	return h
}

// text returns a new text whose length is Pareto distributed from least to 40 times that.
func (h *heavyTail) text(least int) Tokens {
	n := int(float64(least) * min(40, math.Pow(1-h.rng.Float64(), -1/h.tail)))
	var b Builder
	b.Append(h.next, n)
	h.next += int32(n) + 1
	return b.Tokens()
}

// document returns number k of the documents with a probability in proportion to k^-tail (Zipf).
func (h *heavyTail) document() Tokens {
	var sums []float64
	sum := 0.0
	for k := range h.documents {
		sum += math.Pow(float64(k+1), -h.tail)
		sums = append(sums, sum)
	}
	at, k := h.rng.Float64()*sum, 0
	for sums[k] < at {
		k++
	}
	return h.documents[k]
}

// trace draws n questions: half of them about the documents, the others are prompts that never come
// again. With a drift another document becomes the most popular after as many requests.
func (h *heavyTail) trace(n, drift int) (trace []Request) {
	for i := range n {
		if drift > 0 && i%drift == 0 {
			h.documents = append(h.documents[1:], h.documents[0])
		}
		about := h.document()
		if h.rng.IntN(2) == 0 {
			about = h.text(500)
		}
		var b Builder
		b.AppendTokens(about)
		b.AppendTokens(h.text(20))
		input := b.Len()
		b.AppendTokens(h.text(40))
		trace = append(trace, Request{At: float64(i), Tokens: b.Tokens(), InputLen: input})
	}
	return trace
}

// TestHeavyTails: on 18 traces with heavy tails (3 tails, popularity that stays and that drifts, 3
// capacities) tuned hits at least 99 % of the tokens that lru hits. Without its guard it hits less
// on most of them.
func TestHeavyTails(t *testing.T) {
	const requests = 2000
	below := 0
	for _, grain := range []int{1, Grain} {
		m := Model{FLOPsPerToken: 14e9, StateBytes: 50 << 20, Grain: grain}
		for i, tail := range []float64{1.5, 1.75, 2} {
			for _, drift := range []int{0, 20} {
				trace := newHeavyTail(uint64(i), tail).trace(requests, drift)
				for _, capacity := range []int64{1e9, 2e9, 4e9} {
					hits := func(p Policy) int64 { return Simulation{Model: m}.serve(p, trace).HitTokens }
					lru, tuned, once := hits(NewTree(m, capacity, 0)), hits(NewTuned(m, capacity)), hits(newTunedOnce(m, capacity))
					name := fmt.Sprintf("grain %d, tail %g, drift %d, %d bytes", grain, tail, drift, capacity)
					t.Logf("%s: lru hits %d tokens, tuned %d, and %d without its guard", name, lru, tuned, once)
					if 100*tuned < 99*lru {
						t.Errorf("%s: tuned hits %d tokens, and lru %d", name, tuned, lru)
					}
					if once < lru {
						below++
					}
				}
			}
		}
	}
	if below < 10 {
		t.Errorf("without its guard tuned is below lru on %d of 36 traces: they show little", below)
	}
}

// TestGuard: tuned goes back to α = 0 at the first request, after as many as it recorded, by which
// a tree with α = 0 has hit more since the choice.
func TestGuard(t *testing.T) {
	back, stays := 0, 0
	for seed := range uint64(60) {
		m, capacity := models["hybrid"], int64(200+rand.New(rand.NewPCG(seed, 19)).IntN(1000))
		policy, plain := NewTuned(m, capacity), NewTree(m, capacity, 0)
		recorded, since, ahead := 0, 0, 0
		for i, r := range traceOf(seed, 300) {
			before, _ := policy.Alpha()
			hit := policy.Serve(r)
			plainHit := plain.Serve(r)
			alpha, chosen := policy.Alpha()
			switch {
			case !chosen:
				if plain.Evictions() > 0 {
					recorded++
				}
			case before == 0 && since == 0: // chosen just now
				recorded, since = recorded+1, 1
			case before > 0:
				since, ahead = since+1, ahead+plainHit-hit
				if lost := since > recorded && ahead > 0; lost != (alpha == 0) {
					t.Fatalf("seed %d, request %d: α = 0 is %d tokens ahead after %d requests, and α is %g after %g", seed, i, ahead, since-1, alpha, before)
				}
			case alpha > 0:
				t.Fatalf("seed %d, request %d: α is %g again", seed, i, alpha)
			}
		}
		if alpha, _ := policy.Alpha(); alpha > 0 {
			stays++
		} else if since > 1 {
			back++
		}
	}
	if back < 5 || stays < 2 {
		t.Errorf("α went back %d times and stayed %d times: the cases show little", back, stays)
	}
}
