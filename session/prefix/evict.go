package prefix

import "math"

// Shrink evicts the node of the lowest score, or its state, as if the capacity were smaller. It
// reports whether there was one.
func (t *Tree) Shrink() bool {
	if t.bytes == 0 {
		return false
	}
	t.evict()
	return true
}

// evict evicts the node of the lowest score, or its state.
func (t *Tree) evict() {
	n := t.victim()
	if n == nil {
		panic("BUG: a tree holds bytes and has nothing to evict")
	}
	t.evictions++
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
}

// join merges n with its only child.
func (t *Tree) join(n *node) {
	t.remove(n)
	for _, child := range n.children {
		t.attach(child, n.parent)
		if t.store != nil {
			t.store.Join(n.made, child.made)
		}
	}
}

// victim returns the candidate of the lowest score; one on the last request's path only if there is
// no other.
func (t *Tree) victim() *node {
	times, worths := t.spans()
	var best *node
	lowest, onPath := 0.0, true
	for _, n := range t.nodes {
		if !n.candidate() {
			continue
		}
		path := n.path == t.requests
		if path && !onPath {
			continue
		}
		score := t.score(n, times, worths)
		if best == nil || onPath && !path || score < lowest || score == lowest && before(n, best) {
			best, lowest, onPath = n, score, path
		}
	}
	return best
}

// candidate reports whether n may be evicted.
func (n *node) candidate() bool {
	return n.bytes > 0 && (len(n.children) == 0 || len(n.children) == 1 && n.state)
}

// spans returns the ranges of the nodes' times and worths.
func (t *Tree) spans() (times, worths span) {
	times, worths = span{math.Inf(1), math.Inf(-1)}, span{math.Inf(1), math.Inf(-1)}
	for _, n := range t.nodes {
		if n.bytes > 0 {
			times.take(n.time)
			worths.take(n.worth)
		}
	}
	return times, worths
}

// score returns r + α·f. The conversion prevents a fused multiply-add.
func (t *Tree) score(n *node, times, worths span) float64 {
	return times.of(n.time) + float64(t.alpha*worths.of(n.worth))
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
