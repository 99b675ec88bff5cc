package prefix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	share "github.com/krait-ml/krait/internal/goldens"
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

// TestHeavyTails: on 36 cases with heavy tails (3 tails, popularity that stays and that drifts, 3
// capacities, 2 grains) reuse and tuned hit at least 99 % of the tokens that lru hits, and reuse
// nearly always more than the α that is chosen once. By default one of 11 cases runs.
func TestHeavyTails(t *testing.T) {
	const requests = 2000
	below, all, n, few := 0, 0, 0, share.Few(t)
	for _, grain := range []int{1, Grain} {
		m := Model{FLOPsPerToken: 14e9, StateBytes: 50 << 20, Grain: grain}
		for i, tail := range []float64{1.5, 1.75, 2} {
			for _, drift := range []int{0, 20} {
				var trace []Request
				for _, capacity := range []int64{1e9, 2e9, 4e9} {
					if n++; few && n%11 != 0 {
						continue
					}
					if all++; trace == nil {
						trace = newHeavyTail(uint64(i), tail).trace(requests, drift)
					}
					hits := func(policy string) int64 {
						r, err := Replay(policy, m, capacity, trace)
						if err != nil {
							t.Fatal(err)
						}
						return r.HitTokens
					}
					lru, once, tuned, reuse := hits("lru"), hits("marconi"), hits("tuned"), hits("reuse")
					name := fmt.Sprintf("grain %d, tail %g, drift %d, %d bytes", grain, tail, drift, capacity)
					t.Logf("%s: lru hits %d tokens, α chosen once %d, tuned %d, reuse %d", name, lru, once, tuned, reuse)
					if 100*tuned < 99*lru || 100*reuse < max(99*lru, 97*once) {
						t.Errorf("%s: tuned hits %d tokens, reuse %d, lru %d, and α chosen once %d", name, tuned, reuse, lru, once)
					}
					if once < lru {
						below++
					}
				}
			}
		}
	}
	if 4*below < all {
		t.Errorf("α chosen once is below lru on %d of %d traces: they show little", below, all)
	}
}

// TestGuarded: a rule that is much worse than lru costs little beside one.
func TestGuarded(t *testing.T) {
	m := Model{FLOPsPerToken: 14e9, StateBytes: 50 << 20, Grain: Grain}
	trace := newHeavyTail(2, 1.75).trace(3000, 20)
	bad := Simulation{Model: m}.serve(NewTree(m, 2e9, 10), trace).HitTokens
	lru := Simulation{Model: m}.serve(NewTree(m, 2e9, 0), trace).HitTokens
	a := newGuarded(m, 2e9, 0)
	a.rule.alpha = 10
	guarded := Simulation{Model: m}.serve(a, trace).HitTokens
	t.Logf("lru hits %d tokens, α = 10 %d, and with the guard %d", lru, bad, guarded)
	if 100*bad > 95*lru || 100*guarded < 98*lru {
		t.Errorf("lru hits %d tokens, α = 10 %d, and with the guard %d", lru, bad, guarded)
	}
}
