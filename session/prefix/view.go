package prefix

import (
	"cmp"
	"slices"
)

// Node is a node of a tree as it is now.
type Node struct {
	Parent    int     // its index among [Tree.Nodes]; -1: the root
	From, To  int     // tokens before its edge, and up to its end
	First     int32   // token of its edge
	State     bool    // it has one
	Time      float64 // it was last used
	Bytes     int64   // that it holds
	Score     float64 // r + α·f, or the expected hits per byte; those of low score go first
	Candidate bool    // it may be evicted
	Number    int     // by which a [Store] is told of it
}

// Nodes lists the nodes in the order of making.
func (t *Tree) Nodes() []Node {
	nodes := slices.Clone(t.nodes)
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.made, b.made) })
	place := map[*node]int{t.root: -1}
	for i, n := range nodes {
		place[n] = i
	}
	t.prepare()
	times, worths := t.spans()
	out := make([]Node, len(nodes))
	for i, n := range nodes {
		out[i] = Node{place[n.parent], n.parent.depth, n.depth, n.tokens.At(n.parent.depth), n.state, n.time, n.bytes,
			t.score(n.time, t.gain(n), times, worths), t.candidate(n), n.made}
	}
	return out
}
