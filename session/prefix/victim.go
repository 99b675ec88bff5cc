package prefix

import "math"

// ranking finds the victim of a [Tree] without a visit of each node. It is a complete binary tree of
// bounds in a slice: place 1 is the root, 2i and 2i+1 are below place i, and the node of slot k has
// place len/2+k. A part whose bounds are not below the best key so far has no better candidate.
type ranking []bounds

// bounds are those of the nodes of a part. The least of the candidates may be below the real ones
// while a tree evicts, and never above: the search computes the keys of nodes afresh.
type bounds struct {
	time, gain, adds float64 // the least of the candidates
	made             int     // the least of the candidates; math.MaxInt: there is none
	times, worths    span    // of the nodes over which scores are normalised
}

// none are the bounds of no nodes.
var none = bounds{math.Inf(1), math.Inf(1), math.Inf(1), math.MaxInt, emptySpan, emptySpan}

func (b *bounds) merge(a, c *bounds) {
	*b = bounds{min(a.time, c.time), min(a.gain, c.gain), min(a.adds, c.adds), min(a.made, c.made),
		a.times.union(c.times), a.worths.union(c.worths)}
}

// set gives slot k the bounds of its node.
func (r *ranking) set(k int, b bounds) {
	for k >= len(*r)/2 {
		r.grow()
	}
	s := *r
	i := len(s)/2 + k
	s[i] = b
	for i /= 2; i > 0; i /= 2 {
		was := s[i]
		if s[i].merge(&s[2*i], &s[2*i+1]); s[i] == was {
			return
		}
	}
}

// grow doubles the places.
func (r *ranking) grow() {
	old := *r
	*r = make(ranking, max(2*len(old), 2))
	for i := range *r {
		(*r)[i] = none
	}
	copy((*r)[len(*r)/2:], old[len(old)/2:])
	r.sum()
}

// sum computes all bounds from those of nodes.
func (r ranking) sum() {
	for i := len(r)/2 - 1; i > 0; i-- {
		r[i].merge(&r[2*i], &r[2*i+1])
	}
}

// touch updates what is derived from n, of which something has changed.
func (t *Tree) touch(n *node) {
	if n == t.root {
		return
	}
	t.ranking.set(n.slot, t.bounds(n))
	if t.cache != nil {
		t.claims[n.index] = t.claim(n)
	}
}

// touchBelow touches the nodes whose sequences would resume from n.
func (t *Tree) touchBelow(n *node) {
	for _, child := range n.children {
		if t.touch(child); !child.state {
			t.touchBelow(child)
		}
	}
}

// follow changes the rule.
func (t *Tree) follow(r rule) {
	t.rule = r
	for _, n := range t.nodes {
		t.touch(n)
	}
}

// bounds returns those of a node.
func (t *Tree) bounds(n *node) bounds {
	b, may := none, t.candidate(n)
	if may {
		b.time, b.gain, b.made, b.adds = n.time, t.gain(n), n.made, 0
		if t.stake != nil {
			b.adds = t.adds(n)
		}
	}
	if n.bytes > 0 && (may || !t.rule.released) {
		b.times, b.worths = span{n.time, n.time}, span{n.worth, n.worth}
	}
	return b
}

// key orders candidates: those go first that put the least at stake beyond what is allowed, of them
// those of the lowest score, and of equal scores the older ones.
type key struct {
	excess, score, time float64
	made                int
}

var lastKey = key{math.Inf(1), math.Inf(1), math.Inf(1), math.MaxInt}

func (k key) less(o key) bool {
	switch {
	case k.excess != o.excess:
		return k.excess < o.excess
	case k.score != o.score:
		return k.score < o.score
	case k.time != o.time:
		return k.time < o.time
	}
	return k.made < o.made
}

// search looks for the candidate with the first key.
type search struct {
	*Tree
	times, worths span
	onPath        bool // among the nodes on the last request's path, too
	best          *node
	first         key
}

// victim returns the node of the lowest score among those that may go; one on the last request's
// path only if there is no other, and before that one that puts more at stake than is allowed.
func (t *Tree) victim() *node {
	if len(t.nodes) == 0 {
		return nil
	}
	s := search{Tree: t, first: lastKey}
	if t.rule.alpha > 0 || t.rule.released {
		s.times, s.worths = t.spans()
	} // else they are empty, all scores are 0, and the order is that of times, as with α 0
	if s.visit(1, s.key(&t.ranking[1])); s.best == nil {
		s.onPath = true
		s.visit(1, s.key(&t.ranking[1]))
	}
	return s.best
}

// key returns the first key that a candidate within some bounds may have.
func (s *search) key(b *bounds) key {
	if b.made == math.MaxInt {
		return lastKey
	}
	return key{s.excess(b.adds), s.score(b.time, b.gain, s.times, s.worths), b.time, b.made}
}

// visit searches the part of a place, whose candidates have no key before least.
func (s *search) visit(i int, least key) {
	if !least.less(s.first) {
		return
	}
	if k := i - len(s.ranking)/2; k >= 0 {
		s.consider(s.slots[k])
		return
	}
	a, b := 2*i, 2*i+1
	x, y := s.key(&s.ranking[a]), s.key(&s.ranking[b])
	if y.less(x) {
		a, b, x, y = b, a, y, x
	}
	s.visit(a, x)
	s.visit(b, y)
}

// consider takes n if its own key is the first so far.
func (s *search) consider(n *node) {
	b := s.bounds(n)
	if b != s.ranking[len(s.ranking)/2+n.slot] {
		s.ranking.set(n.slot, b)
	}
	if k := s.key(&b); (s.onPath || n.path != s.requests) && k.less(s.first) {
		s.best, s.first = n, k
	}
}

// candidate reports whether n may be evicted. A history keeps what the cache has.
func (t *Tree) candidate(n *node) bool {
	return t.evictable(n) && (t.hazard == nil || !t.cache.whole(n))
}

// evictable reports whether n holds bytes that no other node needs.
func (t *Tree) evictable(n *node) bool {
	switch {
	case n.bytes == 0:
		return false
	case len(n.children) == 1:
		return n.state && !t.rule.leaves
	}
	return len(n.children) == 0
}

// rule orders the candidates.
type rule struct {
	alpha    float64
	leaves   bool // leaves only; a hit touches all nodes on its path
	released bool // the score as Marconi's released code has it
	demand   bool // by expected hits
}

// spans returns the ranges of the nodes' recency and worths; as released, of those of candidates.
func (t *Tree) spans() (times, worths span) {
	if len(t.nodes) == 0 {
		return times, worths
	}
	all := t.ranking[1]
	return span{t.recency(all.times.min), t.recency(all.times.max)}, all.worths
}

// recency returns a time, or as released the inverse of its age, of at least a microsecond.
func (t *Tree) recency(time float64) float64 {
	if t.rule.released {
		return 1 / max(t.now-time, 1e-6)
	}
	return time
}

// gain returns what a node's score depends on besides its time.
func (t *Tree) gain(n *node) float64 {
	if t.rule.demand {
		return t.value(n)
	}
	return n.worth
}

// score returns the value of a node, or r + α·f. The conversion prevents a fused multiply-add.
func (t *Tree) score(time, gain float64, times, worths span) float64 {
	if t.rule.demand {
		return gain
	}
	return times.of(t.recency(time)) + float64(t.rule.alpha*worths.of(gain))
}

// span is the range of some numbers.
type span struct{ min, max float64 }

var emptySpan = span{math.Inf(1), math.Inf(-1)}

// union returns the range of the numbers of both.
func (s span) union(o span) span { return span{min(s.min, o.min), max(s.max, o.max)} }

// of normalises x: 0 at the minimum, 1 at the maximum, 0 if they are equal.
func (s span) of(x float64) float64 {
	if s.min == s.max {
		return 0
	}
	return (x - s.min) / (s.max - s.min)
}
