package prefix

import (
	"cmp"
	"slices"
)

// Store keeps what the nodes of a [Tree] stand for. Nodes have numbers, which are never
// used again. It is told of what happens while [Tree.Admit] runs.
type Store interface {
	// Evict says that what a node ends, these tokens from the first on, is to be evicted: its
	// state with its edge, or by itself. All that leads to it is still there.
	Evict(node int, tokens Tokens)
	// Add says that a node was made for the tokens of the sequence that is admitted,
	// from one depth to another.
	Add(node, from, to int)
	// Mark says that a node gets the state of that sequence after depth tokens.
	Mark(node, depth int)
	// Split says that the beginning of a node's edge, up to a depth, is upper's, which is new.
	Split(upper, node, depth int)
	// Join says that a node's edge is the beginning of its child's now, and its state goes.
	Join(node, child int)
	// Drop says that a node goes with all that it has.
	Drop(node int)
}

// NewTreeOf is an empty tree that tells a store.
func NewTreeOf(m Model, capacity int64, alpha float64, s Store) *Tree {
	t := NewTree(m, capacity, alpha)
	t.store = s
	return t
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

// Walk lists the nodes that tokens pass, from the root on.
func (t *Tree) Walk(tokens Tokens) []int {
	var path []int
	for n := t.walk(tokens).node; n != t.root; n = n.parent {
		path = append(path, n.made)
	}
	slices.Reverse(path)
	return path
}

// Matched is how many tokens have been there before.
func (t *Tree) Matched(tokens Tokens) int { return t.walk(tokens).depth }

// Find is [Tree.Lookup], and touches nothing.
func (t *Tree) Find(input Tokens) (hit int, marks Marks) {
	_, hit, marks = t.find(input)
	return hit, marks
}

// Insert keeps tokens, with the state after them or without, and evicts what is then too
// much.
func (t *Tree) Insert(tokens Tokens, state bool, now float64) {
	end := t.root
	if tokens.n > 0 {
		end = t.keep(tokens, state, now)
	}
	t.requests++
	for n := end; n != t.root; n = n.parent {
		n.path = t.requests
	}
	for t.bytes > t.capacity {
		t.evict()
	}
}

// Held is a node as a store has it.
type Held struct {
	Node   int
	From   int    // tokens before its edge
	Tokens Tokens // that it ends, from the first on
	State  bool   // it has one
	Time   float64
	Last   float64 // the latest time of it and what is below it
}

// Held lists the nodes, the least recent first.
func (t *Tree) Held() []Held {
	last := map[*node]float64{}
	for _, n := range t.nodes {
		for p := n; p != t.root; p = p.parent {
			if at, ok := last[p]; !ok || at < n.time {
				last[p] = n.time
			}
		}
	}
	list := make([]Held, 0, len(t.nodes))
	for _, n := range t.nodes {
		list = append(list, Held{n.made, n.parent.depth, n.tokens.Prefix(n.depth), n.state, n.time, last[n]})
	}
	slices.SortFunc(list, func(a, b Held) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Node, b.Node)) })
	return list
}
