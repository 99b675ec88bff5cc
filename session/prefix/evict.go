package prefix

import "math"

// Shrink evicts the node of the lowest score, or its state, as if the capacity were smaller. It
// reports whether there was one.
func (t *Tree) Shrink() bool {
	if t.bytes == 0 {
		return false
	}
	t.prepare()
	t.evict()
	return true
}

// prepare computes what the scores of nodes and the guard depend on.
func (t *Tree) prepare() {
	if t.rule.demand {
		t.history.demand(t)
	}
	if t.stake != nil {
		t.stake.weigh(t)
	}
}

// evict evicts the node of the lowest score, or its state.
func (t *Tree) evict() {
	n := t.victim(t.candidate)
	if n == nil {
		panic("BUG: a tree holds bytes and has nothing to evict")
	}
	t.evictions++
	if t.hazard != nil {
		t.hazard.count(n, t.requests, false)
	}
	if t.rule.demand {
		t.passOn(n)
	}
	if t.stake != nil {
		t.stake.lose(t, n)
	}
	if t.store != nil {
		t.store.Evict(n.made, n.tokens.Prefix(n.depth))
	}
	if len(n.children) == 1 {
		t.join(n)
		return
	}
	p := n.parent
	if p == t.root {
		delete(t.begins, n.tokens.begin())
	} else {
		delete(p.children, n.tokens.At(p.depth))
	}
	t.remove(n)
	if p != t.root && t.model.StateBytes == 0 {
		n.joined = p
	}
	if t.store != nil {
		t.store.Drop(n.made)
	}
	if p != t.root && len(p.children) == 1 && !p.state {
		t.join(p)
	}
}

// remove removes n from the list.
func (t *Tree) remove(n *node) {
	t.bytes -= n.bytes
	end := len(t.nodes) - 1
	t.nodes[n.index] = t.nodes[end]
	t.nodes[n.index].index = n.index
	t.nodes[end] = nil
	t.nodes = t.nodes[:end]
	n.index = -1
}

// join merges n with its only child.
func (t *Tree) join(n *node) {
	t.remove(n)
	for _, child := range n.children {
		child.read = max(child.read, n.read)
		if t.model.StateBytes == 0 {
			n.joined = child
			child.demand += n.demand
			child.owed += n.owed
		}
		if t.cache != nil && t.cache.data(child) == nil {
			child.cached, child.shared = n.cached, n.shared // its edge gets that of n
		}
		if t.rule.released {
			child.time = max(child.time, n.time)
		}
		t.attach(child, n.parent)
		if t.store != nil {
			t.store.Join(n.made, child.made)
		}
	}
}

// victim returns the node of the lowest score among those that may go; one on the last request's
// path only if there is no other, and before that one that puts more at stake than is allowed.
func (t *Tree) victim(may func(*node) bool) *node {
	var times, worths span // empty, all scores are 0, and the order is that of times, as with α 0
	if t.rule.alpha > 0 || t.rule.released {
		times, worths = t.spans()
	}
	var best *node
	lowest, over, onPath := 0.0, 0.0, true
	for _, n := range t.nodes {
		if !may(n) {
			continue
		}
		path := n.path == t.requests
		if path && !onPath {
			continue
		}
		score, excess := t.score(n, times, worths), t.excess(n)
		if best == nil || onPath && !path || excess < over || excess == over && (score < lowest || score == lowest && before(n, best)) {
			best, lowest, over, onPath = n, score, excess, path
		}
	}
	return best
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

// spans returns the ranges of the nodes' recency and worths.
func (t *Tree) spans() (times, worths span) {
	times, worths = span{math.Inf(1), math.Inf(-1)}, span{math.Inf(1), math.Inf(-1)}
	for _, n := range t.nodes {
		if n.bytes > 0 && (!t.rule.released || t.candidate(n)) {
			times.take(t.recency(n))
			worths.take(n.worth)
		}
	}
	return times, worths
}

// recency returns the time of n, or as released the inverse of its age, of at least a microsecond.
func (t *Tree) recency(n *node) float64 {
	if t.rule.released {
		return 1 / max(t.now-n.time, 1e-6)
	}
	return n.time
}

// score returns the value of n, or r + α·f. The conversion prevents a fused multiply-add.
func (t *Tree) score(n *node, times, worths span) float64 {
	if t.rule.demand {
		return t.value(n)
	}
	return times.of(t.recency(n)) + float64(t.rule.alpha*worths.of(n.worth))
}

// before orders nodes of equal score.
func before(a, b *node) bool {
	return a.time < b.time || a.time == b.time && a.made < b.made
}

// span is the range of some numbers.
type span struct{ min, max float64 }

func (s *span) take(x float64) { s.min, s.max = min(s.min, x), max(s.max, x) }

// of normalises x: 0 at the minimum, 1 at the maximum, 0 if they are equal.
func (s span) of(x float64) float64 {
	if s.min == s.max {
		return 0
	}
	return (x - s.min) / (s.max - s.min)
}
