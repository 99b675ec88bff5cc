package prefix

import (
	"math"
	"math/rand/v2"
	"testing"

	share "github.com/krait-ml/krait/internal/goldens"
)

// plainVictim is [Tree.victim] by a visit of each node.
func plainVictim(t *Tree) *node {
	times, worths := emptySpan, emptySpan
	for _, n := range t.nodes {
		if n.bytes > 0 && (!t.rule.released || t.candidate(n)) {
			times, worths = times.union(span{n.time, n.time}), worths.union(span{n.worth, n.worth})
		}
	}
	score := func(n *node) float64 {
		if !t.rule.demand {
			return float64(t.rule.alpha*worths.of(n.worth)) + number(t.rule.alpha > 0)*times.of(n.time)
		}
		above := n.parent
		for above != t.root && t.model.StateBytes > 0 && !above.state {
			above = above.parent
		}
		freed := n.bytes
		if len(n.children) == 1 {
			freed = t.model.StateBytes
		}
		return t.demands[n.slot] * float64(n.depth-above.depth) / float64(freed)
	}
	var best *node
	var first []float64
	for _, n := range t.nodes {
		if !t.candidate(n) {
			continue
		}
		excess := 0.0
		if t.stake != nil {
			if adds := t.adds(n); adds > t.stake.left {
				excess = max(adds, 0)
			}
		}
		k := []float64{number(n.path == t.requests), excess, score(n), n.time, float64(n.made)}
		for i, x := range k {
			if best != nil && x > first[i] {
				break
			}
			if best == nil || x < first[i] {
				best, first = n, k
				break
			}
		}
	}
	return best
}

// plainDemands are the demands and the owed of a cache's nodes, by slot, by a walk for each node of
// its history and of lru's tree.
func plainDemands(t *Tree) (demands, owed []float64) {
	demands, owed = make([]float64, len(t.slots)), make([]float64, len(t.slots))
	for k, other := range []*Tree{t.history.tree, t.stake.lru} {
		for _, n := range other.nodes {
			at := t.walk(n.tokens.Prefix(n.depth))
			from := at.node
			for from != t.root && t.model.StateBytes > 0 && !from.state {
				from = from.parent
			}
			if t.model.StateBytes == 0 && at.child != nil {
				from = at.child
			}
			switch {
			case t.model.StateBytes > 0 && !n.state || from == t.root:
			case k == 0:
				demands[from.slot] += other.hazard.of(classOf(n), other.requests-n.since)
			case t.model.StateBytes > 0:
				owed[from.slot]++
			default: // rows of both edges
				for ; from != t.root; from = from.parent {
					owed[from.slot] += float64(max(min(at.depth, from.depth, n.depth)-max(n.parent.depth, from.parent.depth), 0))
				}
			}
		}
	}
	return demands, owed
}

// TestVictims: what an eviction depends on is kept up to date as trees change, to the bit, and so
// of a cache, and of the trees beside it, the same node goes as by a visit of each.
func TestVictims(t *testing.T) {
	seeds := uint64(60)
	if share.Few(t) {
		seeds = 12
	}
	evicted, few := 0, 0
	for seed := range seeds {
		for name, m := range models {
			rng := rand.New(rand.NewPCG(seed, 42))
			a := NewReuse(m, int64(1+rng.IntN(1500)))
			a.follow([]rule{{demand: true}, {alpha: 0.5}}[seed/3%2])
			var before []string
			for i := range 60 {
				input, output := drawRequest(rng, before)
				before = append(before, input+output)
				a.Serve(request(float64(i/(1+int(seed)%2)), input, output))
				a.history.demand(a.Tree)
				a.stake.weigh(a.Tree)
				demands, owed := plainDemands(a.Tree)
				for _, n := range a.nodes {
					if a.demands[n.slot] != demands[n.slot] || !math.IsInf(a.stake.left, 1) && a.owed[n.slot] != owed[n.slot] {
						t.Fatalf("seed %d, %s, request %d: of a node at %d demand is %g and %g are owed, want %g and %g", seed, name, i, n.depth,
							a.demands[n.slot], a.owed[n.slot], demands[n.slot], owed[n.slot])
					}
				}
				for range rng.IntN(3) {
					for k, tree := range []*Tree{a.Tree, a.history.tree, a.stake.lru} {
						want := plainVictim(tree)
						if got := tree.victim(); got != want {
							t.Fatalf("seed %d, %s, request %d: of tree %d goes %+v, want %+v", seed, name, i, k, got, want)
						}
						if want != nil && k == 0 {
							tree.evict()
							evicted++
							few += int(number(len(tree.nodes) > 4))
						}
					}
				}
			}
		}
	}
	if few < 2*int(seeds) {
		t.Errorf("%d nodes are evicted, %d of more than four: they show little", evicted, few)
	}
}
