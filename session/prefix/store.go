package prefix

import (
	"cmp"
	"slices"
)

// Store holds the data of the nodes of a [Tree]. Nodes have numbers, which are never reused. The
// tree calls it during [Tree.Admit].
type Store interface {
	// Evict precedes the eviction of a node, which ends these tokens: of its state with its edge,
	// or alone. The nodes on its path are still there.
	Evict(node int, tokens Tokens)
	// Add makes a node for the tokens of the admitted sequence from one depth to another.
	Add(node, from, to int)
	// Mark gives a node the state of that sequence after depth tokens.
	Mark(node, depth int)
	// Split gives the beginning of a node's edge, up to a depth, to a new node upper.
	Split(upper, node, depth int)
	// Join prepends a node's edge to that of its child, and drops its state.
	Join(node, child int)
	// Drop removes a node with its data.
	Drop(node int)
}

// Path lists the nodes from the root to the one at a depth, where [Tree.Lookup] has hit.
func (t *Tree) Path(tokens Tokens, depth int) []int {
	var path []int
	n := t.root
	for n.depth < depth {
		n = t.child(n, tokens)
		path = append(path, n.made)
	}
	return path
}

// Walk lists the nodes on the path of tokens, from the root.
func (t *Tree) Walk(tokens Tokens) []int {
	var path []int
	for n := t.walk(tokens).node; n != t.root; n = n.parent {
		path = append(path, n.made)
	}
	slices.Reverse(path)
	return path
}

// Matched returns the number of tokens that match the tree.
func (t *Tree) Matched(tokens Tokens) int { return t.walk(tokens).depth }

// Find is [Tree.Lookup] without a touch.
func (t *Tree) Find(input Tokens) (hit int, marks Marks) {
	_, hit, marks = t.find(input)
	return hit, marks
}

// Insert adds tokens, with the state after them or without, and evicts down to the capacity.
func (t *Tree) Insert(tokens Tokens, state bool, now float64) { t.insert(t.root, tokens, state, now) }

// insert is Insert of tokens whose path passes a node.
func (t *Tree) insert(above *node, tokens Tokens, state bool, now float64) {
	end := t.root
	if tokens.n > 0 {
		end = t.ensure(above, tokens, state, ofEnd, now)
	}
	t.requests++
	t.now = now
	for n := end; n != t.root; n = n.parent {
		n.path = t.requests
	}
	if t.bytes <= t.capacity {
		return
	}
	t.prepare()
	for t.bytes > t.capacity {
		t.evict()
	}
}

// Entry describes a node for a store.
type Entry struct {
	Node   int
	From   int    // tokens before its edge
	Tokens Tokens // from the root to its end
	State  bool   // it has one
	Time   float64
	Last   float64 // the latest time of it and the nodes below
}

// Entries lists the nodes, the least recent first.
func (t *Tree) Entries() []Entry {
	last := map[*node]float64{}
	for _, n := range t.nodes {
		for p := n; p != t.root; p = p.parent {
			if at, ok := last[p]; !ok || at < n.time {
				last[p] = n.time
			}
		}
	}
	list := make([]Entry, 0, len(t.nodes))
	for _, n := range t.nodes {
		list = append(list, Entry{n.made, n.parent.depth, n.tokens.Prefix(n.depth), n.state, n.time, last[n]})
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Node, b.Node)) })
	return list
}
