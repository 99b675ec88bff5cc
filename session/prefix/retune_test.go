package prefix

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRetuned: after each window α is what does best in it from the list of prefixes as
// it was, if that is better by enough.
func TestRetuned(t *testing.T) {
	const size = 50
	changed, little, last := 0, 0, 0
	for seed := range uint64(20) {
		m, capacity := models["hybrid"], int64(100+rand.New(rand.NewPCG(seed, 12)).IntN(700))
		plain, policy := &list{m: m, capacity: capacity}, newRetuned(m, capacity, size)
		for window := range slices.Chunk(traceOf(seed, 5*size+size/2), size) {
			var best float64
			most := -1
			for _, alpha := range Alphas {
				l := plain.clone()
				l.alpha = alpha
				if hits := l.serve(window); hits > most {
					best, most = alpha, hits
				}
			}
			hits, got := plain.serve(window), 0
			for _, r := range window {
				got += policy.Serve(r)
			}
			if got != hits {
				t.Fatalf("seed %d: a window hits %d tokens, want %d", seed, got, hits)
			}
			switch {
			case len(window) < size: // nothing is chosen
				last++
			case most > hits && float64(most) >= 1.02*float64(hits):
				plain.alpha, changed = best, changed+1
			case most > hits:
				little++
			}
			if alpha, ok := policy.Alpha(); !ok || alpha != plain.alpha || dumpTree(t, policy.Tree) != dumpList(plain) {
				t.Fatalf("seed %d: α %v, %v; want %v", seed, alpha, ok, plain.alpha)
			}
		}
	}
	if changed < 5 || little < 1 || last != 20 {
		t.Errorf("α changed %d times, and %d times there was too little to gain: the cases show little", changed, little)
	}
}

// TestRetunedWindow: the first choice is after 500 requests.
func TestRetunedWindow(t *testing.T) {
	p := NewRetuned(models["hybrid"], 300)
	for i, r := range traceOf(1, 501) {
		if _, ok := p.Alpha(); ok != (i == 500) {
			t.Fatalf("chosen %v after %d requests", ok, i)
		}
		p.Serve(r)
	}
}

func (l *list) clone() *list {
	c := *l
	c.nodes = nil
	for _, n := range l.nodes {
		copied := *n
		c.nodes = append(c.nodes, &copied)
	}
	return &c
}

// serve is how many tokens of the requests hit.
func (l *list) serve(requests []Request) (hits int) {
	for _, r := range requests {
		hit, marks := l.lookup(textOf(r.Input()), r.At)
		l.admit(textOf(r.Tokens), marks, r.At)
		hits += hit
	}
	return hits
}
