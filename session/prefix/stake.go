package prefix

import "math"

// allowed is the share of lru's hit tokens that a guarded tree may hit less. It is half of what is
// promised, since [stake] takes each loss for a single one.
const allowed = 0.005

// risked is the share of what a rule has hit on trial beyond 1.5 times the tokens of lru, less this
// many standard deviations, that may be lost besides: a cache that begins with the states of lru
// has little of its own to risk.
const risked, certain = 0.3, 2

// fruitless is the number of requests without a hit after which lru hits in under 1 % of them, with
// 95 % confidence.
const fruitless = 300

// stake bounds what a tree hits less than lru, which serves the same requests beside it. At stake
// are the tokens that lru's tree could hit now and the cache could not: no more are lost if the
// cache follows lru from now on, since a request that misses them admits them again. A state or
// prefix that lru's tree has is evicted only while the tokens at stake stay below those that the
// cache is ahead of [allowed], so that losses are paid from gains. (Conservative bandits, Wu et al.
// 2016, spend their reward on trials alike.) While lru has hit nothing in [fruitless] requests,
// nothing is at stake: prompts that come in turn need another rule.
type stake struct {
	lru   *Tree
	ahead float64 // tokens hit, less those that must be
	plain int64   // tokens that lru hit
	trust float64 // tokens that may be lost besides, as the rule in use has hit more on trial
	left  float64 // tokens that evictions may put at stake yet
	sums  sums
}

// guard bounds what t hits less than lru, an empty tree of the same model and capacity.
func (t *Tree) guard(lru *Tree) {
	t.stake = &stake{lru: lru}
	t.watch(lru)
}

// count counts the tokens that a request hits in the cache and in lru's tree.
func (s *stake) count(hit, plain int) {
	s.ahead += float64(hit) - (1-allowed)*float64(plain)
	s.plain += int64(plain)
}

// weigh computes what is at stake, and for each node of the cache what its eviction would add:
// without states the tokens of its edge that lru's tree has, and otherwise, per token of its edge,
// the states of lru's tree from which sequences would resume there.
func (s *stake) weigh(t *Tree) {
	if s.left = s.ahead + s.trust; s.plain == 0 && s.lru.requests >= fruitless {
		s.left = math.Inf(1)
		return
	}
	owed := s.sums.empty(len(t.slots))
	if t.model.StateBytes > 0 {
		for _, c := range s.lru.claims {
			s.left -= float64(c.lost)
			owed[c.source]++
		}
		t.update(t.owed, owed)
		return
	}
	for _, m := range s.lru.nodes {
		s.left -= float64(m.depth - m.parent.depth)
		for n := t.data(m); n != nil && n != t.root && n.depth > m.parent.depth; n = n.parent {
			both := float64(max(min(m.shared, n.depth)-max(m.parent.depth, n.parent.depth), 0))
			owed[n.slot] += both
			s.left += both
		}
	}
	t.update(t.owed, owed)
}

// adds returns the tokens that the eviction of n puts at stake.
func (t *Tree) adds(n *node) float64 {
	if t.model.StateBytes == 0 {
		return t.owed[n.slot]
	}
	return t.owed[n.slot] * float64(n.depth-t.resumable(n).depth)
}

// excess returns the tokens that an eviction adds, or 0 if that is allowed.
func (t *Tree) excess(adds float64) float64 {
	if t.stake == nil || adds <= t.stake.left {
		return 0
	}
	return max(adds, 0)
}

// lose takes the eviction of n into account.
func (s *stake) lose(t *Tree, n *node) {
	s.left -= t.adds(n)
	if p := t.resumable(n); p != t.root && t.model.StateBytes > 0 {
		t.owed[p.slot] += t.owed[n.slot]
	}
}
