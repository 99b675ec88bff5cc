package prefix

import "math"

// ranking finds the victim of a [Tree] without a visit of each node. Its parts have nodes of about
// equal worth, since bounds of few like nodes are close.
type ranking struct {
	parts []*part
	class map[int]*part
}

// part has nodes, and bounds of theirs in a complete binary tree: place 1 is the root, 2i and 2i+1
// are below place i, and node k has place len/2+k. Nodes below a place whose bounds are not below
// the first key so far are no victims.
type part struct {
	bounds []bounds
	nodes  []*node // nil: free
	free   []int
}

// bounds are those of some nodes. The least of the candidates may be below the real ones, and never
// above: the search computes the keys of nodes afresh.
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

// put gives n its class and bounds.
func (r *ranking) put(n *node, class int, b bounds) {
	p := r.class[class]
	if p == nil {
		p = &part{}
		if r.class == nil {
			r.class = map[int]*part{}
		}
		r.class[class], r.parts = p, append(r.parts, p)
	}
	if n.part != p {
		r.drop(n)
		p.add(n)
	}
	p.set(n.place, b)
}

// drop removes n if it is in a part.
func (r *ranking) drop(n *node) {
	if p := n.part; p != nil {
		p.set(n.place, none)
		p.nodes[n.place], p.free = nil, append(p.free, n.place)
		n.part = nil
	}
}

// add finds a place for n.
func (p *part) add(n *node) {
	if len(p.free) == 0 { // double the places
		was, half := p.bounds, len(p.nodes)
		p.bounds, p.nodes = make([]bounds, max(4*half, 2)), append(p.nodes, make([]*node, max(half, 1))...)
		for i := range p.bounds {
			p.bounds[i] = none
		}
		for k := len(p.nodes) - 1; k >= half; k-- {
			p.free = append(p.free, k)
		}
		for k := range half {
			p.set(k, was[half+k])
		}
	}
	last := len(p.free) - 1
	n.part, n.place, p.free = p, p.free[last], p.free[:last]
	p.nodes[n.place] = n
}

// set changes the bounds of node k.
func (p *part) set(k int, b bounds) {
	i := len(p.nodes) + k
	p.bounds[i] = b
	for i /= 2; i > 0; i /= 2 {
		was := p.bounds[i]
		if p.bounds[i].merge(&p.bounds[2*i], &p.bounds[2*i+1]); p.bounds[i] == was {
			return
		}
	}
}

// touch updates what is derived from n, of which something has changed.
func (t *Tree) touch(n *node) {
	if n == t.root {
		return
	}
	t.ranking.put(n, t.class(n), t.bounds(n))
	if t.cache != nil {
		t.claims[n.index] = t.claim(n)
	}
}

// class returns the class of n: half a power of two of its worth, if scores depend on that.
func (t *Tree) class(n *node) int {
	if t.rule.alpha == 0 && !t.rule.released {
		return 0
	}
	return int(math.Float64bits(n.worth) >> 51)
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
	s := search{Tree: t, first: lastKey}
	if t.rule.alpha > 0 || t.rule.released {
		s.times, s.worths = t.spans()
	} // else they are empty, all scores are 0, and the order is that of times, as with α 0
	if s.all(); s.best == nil {
		s.onPath = true
		s.all()
	}
	return s.best
}

// all searches all parts, first the one whose bounds are.
func (s *search) all() {
	var first *part
	least := lastKey
	for _, p := range s.ranking.parts {
		if k := s.key(&p.bounds[1]); k.less(least) {
			first, least = p, k
		}
	}
	if first == nil {
		return
	}
	s.visit(first, 1, least)
	for _, p := range s.ranking.parts {
		if p != first {
			s.visit(p, 1, s.key(&p.bounds[1]))
		}
	}
}

// key returns the first key that a candidate within some bounds may have.
func (s *search) key(b *bounds) key {
	if b.made == math.MaxInt {
		return lastKey
	}
	return key{s.excess(b.adds), s.score(b.time, b.gain, s.times, s.worths), b.time, b.made}
}

// visit searches below a place. Candidates there have no key before least.
func (s *search) visit(p *part, i int, least key) {
	if !least.less(s.first) {
		return
	}
	if k := i - len(p.nodes); k >= 0 {
		s.consider(p.nodes[k])
		return
	}
	a, b := 2*i, 2*i+1
	x, y := s.key(&p.bounds[a]), s.key(&p.bounds[b])
	if y.less(x) {
		a, b, x, y = b, a, y, x
	}
	s.visit(p, a, x)
	s.visit(p, b, y)
}

// consider takes n if its own key is the first so far.
func (s *search) consider(n *node) {
	b := s.bounds(n)
	if b != n.part.bounds[len(n.part.nodes)+n.place] {
		n.part.set(n.place, b)
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
	case n.fan == 1:
		return n.state && !t.rule.leaves
	}
	return n.fan == 0
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
	times, worths = emptySpan, emptySpan
	for _, p := range t.ranking.parts {
		times, worths = times.union(p.bounds[1].times), worths.union(p.bounds[1].worths)
	}
	return span{t.recency(times.min), t.recency(times.max)}, worths
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
