package prefix

import "cmp"

// remembered is the size of a history in capacities of the cache. It holds tokens and no data.
const remembered = 4

// history remembers more prefixes than a cache has room for, and learns how soon they are used
// again. It has no data: a node takes some hundred bytes, besides its tokens.
type history struct {
	tree *Tree // the least recently used go first; requests are its clock
	sums sums
}

// remember gives a cache a history.
func (t *Tree) remember() {
	h := &history{tree: NewTree(t.model, min(t.capacity, MostBytes/remembered)*remembered, 0)}
	h.tree.hazard = newHazard()
	t.history = h
	t.watch(h.tree)
}

// serve takes a request that the cache is about to admit.
func (h *history) serve(r Request, marks Marks) {
	h.tree.Lookup(r.Input(), r.At)
	h.tree.Admit(r.Tokens, marks, r.At)
	// Early on, when each request tells much, the densities are updated more often.
	if now, last := h.tree.requests, h.tree.hazard.computed; now-last >= min(refreshed, now/4+1) {
		h.tree.hazard.refresh(h.tree.claims, now)
	}
}

// watch makes nodes of another tree of the same requests know which of t's nodes has their data.
func (t *Tree) watch(other *Tree) {
	other.cache = t
	t.beside = append(t.beside, other)
}

// link makes n, a new node or one that has got a state, known to the trees beside its cache, or
// finds the cache's node with its data if n is in such a tree.
func (t *Tree) link(n *node) {
	for _, other := range t.beside {
		other.linkTo(n)
	}
	if t.cache == nil {
		return
	}
	if states := t.model.StateBytes > 0; !t.cache.whole(n) && !(states && t.cache.data(n) != nil) {
		at := t.cache.walk(n.tokens.Prefix(n.depth))
		if n.cached, n.shared = cmp.Or(at.child, at.node), at.depth; states {
			n.cached = at.node // or a state above it
		}
	}
	t.resume(n)
	t.touch(n)
}

// linkTo makes n, a node of the cache, the one that has the data of t's nodes on its edge, or with
// states the last state on the edge of t that it is on.
func (t *Tree) linkTo(n *node) {
	at := t.walk(n.tokens.Prefix(n.depth))
	m := cmp.Or(at.child, at.node)
	switch {
	case at.depth < n.depth:
	case t.model.StateBytes > 0:
		if c := t.cache.data(m); c == nil || c.depth < n.depth {
			m.cached = n
		}
	default:
		for ; m != t.root && m.depth > n.parent.depth; m = m.parent {
			if rows := min(m.depth, n.depth); t.cache.data(m) == nil || m.shared <= rows {
				m.cached, m.shared = n, rows
			}
		}
	}
	t.renew(at, n.parent.depth)
}

// lost tells the trees beside a cache that it has evicted or merged n, with its rows from a depth
// on.
func (t *Tree) lost(n *node, from int) {
	for _, other := range t.beside {
		other.renew(other.walk(n.tokens.Prefix(n.depth)), from)
	}
}

// renew updates the nodes of t, a tree beside a cache, on a path from a depth on, of whose data the
// cache has got or lost some.
func (t *Tree) renew(at position, from int) {
	for n := cmp.Or(at.child, at.node); n != t.root && n.depth > from; n = n.parent {
		t.resume(n)
		t.touch(n)
	}
}

// resume finds the node of the cache from which the sequence of n would resume: the one with its
// data, or its parent's; and then that of the nodes below without data of their own.
func (t *Tree) resume(n *node) {
	source := cmp.Or(t.cache.data(n), n.parent.source)
	if source == n.source {
		return
	}
	n.source = source
	t.touch(n)
	for _, child := range n.children {
		if t.cache.data(child) == nil {
			t.resume(child)
		}
	}
}

// data returns the node of t, a cache, with the data of a node of a tree beside it: without states
// the one with the last of the rows of its edge that t has, those of its first n.shared tokens, and
// otherwise the one of the last state on its edge. It is nil if there is none.
func (t *Tree) data(n *node) *node {
	if t.model.StateBytes == 0 {
		for n.cached != nil && n.cached.index < 0 {
			if n.cached = n.cached.joined; n.cached != nil {
				n.shared = min(n.shared, n.cached.depth)
			}
		}
		if n.cached == nil || n.shared <= n.parent.depth {
			return nil
		}
		for n.cached.parent.depth >= n.shared {
			n.cached = n.cached.parent
		}
		return n.cached
	}
	for n.cached != nil && (n.cached.index < 0 || !n.cached.state) {
		n.cached = n.cached.parent
	}
	if n.cached == nil || n.cached.depth <= n.parent.depth {
		return nil
	}
	return n.cached
}

// whole reports whether t, a cache, has all data of a node of a tree beside it.
func (t *Tree) whole(n *node) bool {
	c := t.data(n)
	if c == nil || t.model.StateBytes == 0 {
		return c != nil && n.shared == n.depth
	}
	return c.depth >= n.depth
}

// claim is what a node of a tree beside a cache asks of that: its sequence would resume from one of
// its nodes.
type claim struct {
	source int32 // slot of that node, or of the root; that, too, if n cannot be hit
	lost   int32 // tokens of the sequence after it; 0 if n cannot be hit
	since  int   // as of n
	class  int32 // as of n; idle if it cannot be hit
}

// claim returns the claim of a node.
func (t *Tree) claim(n *node) claim {
	if !n.state && t.model.StateBytes > 0 {
		return claim{class: idle}
	}
	source := cmp.Or(n.source, t.cache.root)
	return claim{int32(source.slot), int32(n.depth - source.depth), n.since, int32(classOf(n))}
}

// sums is memory for a number per slot.
type sums []float64

// empty returns n zeros.
func (s *sums) empty(n int) []float64 {
	*s = append((*s)[:0], make([]float64, n)...)
	return *s
}

// update replaces numbers by slot, and touches the nodes whose number changes.
func (t *Tree) update(old, now []float64) {
	for slot := 1; slot < len(now); slot++ { // not the root
		if now[slot] != old[slot] {
			old[slot] = now[slot]
			t.touch(t.slots[slot])
		}
	}
}

// demand sets the demand of a cache's nodes: the expected uses per request of their own prefix, and
// of all longer ones that would resume from it, since the cache has lost what is nearer to them.
func (h *history) demand(t *Tree) {
	demands := h.sums.empty(len(t.slots))
	for _, c := range h.tree.claims {
		demands[c.source] += h.tree.hazard.of(int(c.class), h.tree.requests-c.since)
	}
	t.update(t.demands, demands)
}

// resumable returns the deepest node above n from which a sequence can resume, or the root.
func (t *Tree) resumable(n *node) *node {
	p := n.parent
	for p != t.root && !p.state && t.model.StateBytes > 0 {
		p = p.parent
	}
	return p
}

// value returns the tokens per request and byte that are expected to hit less without n.
func (t *Tree) value(n *node) float64 {
	freed := n.bytes
	if n.fan == 1 {
		freed = t.model.StateBytes
	}
	return t.demands[n.slot] * float64(n.depth-t.resumable(n).depth) / float64(freed)
}

// passOn gives the demand of a node that is evicted to the one from which its uses would resume.
func (t *Tree) passOn(n *node) {
	if p := t.resumable(n); p != t.root {
		t.demands[p.slot] += t.demands[n.slot]
	}
}
