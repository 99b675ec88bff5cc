package prefix

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
	n := t.victim()
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
	p := n.parent
	if n.fan == 1 {
		t.join(n)
		t.lost(n, p.depth)
		return
	}
	if p == t.root {
		delete(t.begins, n.tokens.begin())
	} else {
		delete(p.children, n.tokens.At(p.depth))
		p.fan--
	}
	t.remove(n)
	if p != t.root && t.model.StateBytes == 0 {
		n.joined = p
	}
	if t.store != nil {
		t.store.Drop(n.made)
	}
	from := p.depth
	if p != t.root && p.fan == 1 && !p.state {
		t.join(p)
		from = p.parent.depth
	} else {
		t.touch(p)
	}
	t.lost(n, from)
}

// remove removes n from the list.
func (t *Tree) remove(n *node) {
	t.bytes -= n.bytes
	end := len(t.nodes) - 1
	t.nodes[n.index] = t.nodes[end]
	t.nodes[n.index].index = n.index
	t.nodes[end] = nil
	t.nodes = t.nodes[:end]
	if t.cache != nil {
		t.claims[n.index] = t.claims[end]
		t.claims = t.claims[:end]
	}
	n.index = -1
	t.slots[n.slot], t.demands[n.slot], t.owed[n.slot] = nil, 0, 0
	t.free = append(t.free, n.slot)
	t.ranking.drop(n)
}

// join merges n with its only child.
func (t *Tree) join(n *node) {
	for _, child := range n.children {
		child.read = max(child.read, n.read)
		if t.model.StateBytes == 0 {
			n.joined = child
			t.demands[child.slot] += t.demands[n.slot]
			t.owed[child.slot] += t.owed[n.slot]
		}
		t.remove(n)
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
