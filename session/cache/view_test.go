package cache_test

import (
	"slices"
	"testing"
)

// TestNodes: the tree that is shown is what is held, and counts who went on from where: also
// where an edge was split meanwhile.
func TestNodes(t *testing.T) {
	b := newBench(t, 2)
	b.with(b.e, 20, 1000, "lru", 0)
	hits := func() (list []int) {
		nodes, bytes := b.cache.Nodes(), int64(0)
		for i, n := range nodes {
			bytes += n.Bytes
			if n.Parent < 0 != (n.From == 0) || n.Parent >= 0 && (nodes[n.Parent].To != n.From || nodes[n.Parent].Hits < n.Hits) || n.To <= n.From || n.Unused < 0 {
				t.Errorf("node %d is %+v", i, n)
			}
			list = append(list, n.To, n.Hits)
		}
		if s := b.cache.Stats(); bytes != s.Bytes {
			t.Errorf("the nodes have %d bytes, and %d are held", bytes, s.Bytes)
		}
		return list
	}
	first := []int{1, 2, 3, 4, 5, 6}
	b.end(b.begin(first), []int{7}, false)
	if got := hits(); !slices.Equal(got, []int{7, 0}) {
		t.Errorf("tokens and hits are %v", got)
	}
	for range 2 { // from the state after 7
		b.end(b.begin([]int{1, 2, 3, 4, 5, 6, 7, 8}), []int{9}, false)
	}
	if got := hits(); !slices.Equal(got, []int{7, 2, 9, 0}) {
		t.Errorf("tokens and hits are %v", got)
	}
	b.end(b.begin([]int{1, 2, 3, 30, 31}), nil, false) // splits the edge, and keeps a state there
	b.end(b.begin([]int{1, 2, 3, 40, 41}), nil, false)
	if got := hits(); !slices.Equal(got, []int{7, 2, 9, 0, 3, 3, 5, 0, 5, 0}) {
		t.Errorf("tokens and hits are %v", got)
	}
	b.cache.Close()
	if got := b.cache.Nodes(); got != nil {
		t.Errorf("closed, it shows %v", got)
	}
}
