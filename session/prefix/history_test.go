package prefix

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNearest: of each node of the tree with lru beside a cache, the state is found from which its
// sequence would resume in the cache, also where the tree has merged the nodes above it.
func TestNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 40))
	m := Model{FLOPsPerToken: 1, CacheBytes: 1, StateBytes: 500, Grain: 8}
	a := newGuarded(m, 6000, 0, 5)
	a.rule.alpha = 5
	var seen []Tokens
	between := 0
	for i := range 600 {
		var b Builder
		if len(seen) > 0 && rng.IntN(4) > 0 {
			of := seen[max(0, len(seen)-1-rng.IntN(12))]
			b.AppendTokens(of.Prefix(1 + rng.IntN(of.Len())))
		}
		b.Append(int32(1000*(i+1)), 1+rng.IntN(60))
		input := b.Len()
		b.Append(int32(1000*(i+1)+500), 1+rng.IntN(30))
		r := Request{At: float64(i), Tokens: b.Tokens(), InputLen: input}
		a.Serve(r)
		if seen = append(seen, r.Tokens); r.Tokens.Len() > 400 {
			seen = nil
		}
		for _, n := range a.stake.lru.nodes {
			want := a.walk(n.tokens.Prefix(n.depth)).node
			for want != a.root && !want.state {
				want = want.parent
			}
			got := n.source
			if got == nil {
				got = a.root
			}
			if got != want {
				t.Fatalf("after request %d: a node at %d resumes after %d tokens, want %d", i, n.depth, got.depth, want.depth)
			}
			if want.depth > n.parent.depth && want.depth < n.depth {
				between++
			}
		}
	}
	if between < 50 {
		t.Errorf("%d nodes resume inside their edges: they show little", between)
	}
}

// TestRows: without states, trees beside a cache know which rows of their nodes it has, to the
// token, also after it has evicted, split and merged nodes, and so what is at stake.
func TestRows(t *testing.T) {
	some := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 41))
		a := NewReuse(models["attention"], int64(1+rng.IntN(900)))
		var before []string
		for i := range 60 {
			input, output := drawRequest(rng, before)
			before = append(before, input+output)
			a.Serve(request(float64(i), input, output))
			if rng.IntN(20) == 0 {
				a.Shrink()
			}
			rows := func(n *node) int { return max(a.walk(n.tokens.Prefix(n.depth)).depth-n.parent.depth, 0) }
			for _, tree := range []*Tree{a.history.tree, a.stake.lru} {
				for _, n := range tree.nodes {
					got := 0
					if c := a.data(n); c != nil {
						got = n.shared - n.parent.depth
					}
					if want := rows(n); got != want || a.whole(n) != (want == n.depth-n.parent.depth) {
						t.Fatalf("seed %d, request %d: of %d rows of a node after %d the cache has %d, want %d", seed, i, n.depth-n.parent.depth, n.parent.depth, got, want)
					}
					if 0 < got && got < n.depth-n.parent.depth {
						some++
					}
				}
			}
			want := a.stake.ahead + a.stake.trust
			for _, n := range a.stake.lru.nodes {
				want -= float64(n.depth - n.parent.depth - rows(n))
			}
			if a.stake.weigh(a.Tree); !math.IsInf(a.stake.left, 1) && math.Abs(a.stake.left-want) > 1e-6 {
				t.Fatalf("seed %d, request %d: %g tokens may be put at stake, want %g", seed, i, a.stake.left, want)
			}
		}
	}
	if some < 20 {
		t.Errorf("of %d nodes the cache has a part: they show little", some)
	}
}

// TestHistoryFits: a history keeps what the cache has, as far as it has room.
func TestHistoryFits(t *testing.T) {
	m := Model{FLOPsPerToken: 1000, FLOPsPerTokenSquared: 7, CacheBytes: 10, Grain: 3}
	alone := (&Adaptive{Tree: NewTree(m, 500, 0)}).predict()
	for i, r := range readGolden(t, "edges-attention") {
		alone.Serve(r)
		if h := alone.history.tree; h.bytes > h.capacity || alone.bytes > alone.capacity {
			t.Fatalf("after request %d the history has %d of %d bytes, and the cache %d of %d", i, h.bytes, h.capacity, alone.bytes, alone.capacity)
		}
	}
}
