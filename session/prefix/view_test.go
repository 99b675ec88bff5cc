package prefix

import "testing"

// TestNodes: what is shown is what is held, and the lowest candidate goes next.
func TestNodes(t *testing.T) {
	evicted := 0
	for seed := range uint64(20) {
		for name, m := range models {
			tree := NewTree(m, 400, 2)
			for _, r := range traceOf(seed, 40) {
				tree.Serve(r)
			}
			nodes, sum, lowest := tree.Nodes(), int64(0), -1
			for i, n := range nodes {
				sum += n.Bytes
				if n.Bytes != m.Bytes(n.To-n.From, n.State) || n.Parent < 0 != (n.From == 0) || n.Parent >= 0 && nodes[n.Parent].To != n.From {
					t.Fatalf("seed %d, %s: node %d is %+v", seed, name, i, n)
				}
				if n.Candidate && (lowest < 0 || n.Score < nodes[lowest].Score) {
					lowest = i
				}
			}
			if sum != tree.Bytes() || len(nodes) != len(tree.nodes) {
				t.Fatalf("seed %d, %s: %d bytes shown, %d held", seed, name, sum, tree.Bytes())
			}
			tree.requests++ // nothing is on the path
			if x := tree.victim(); x != nil {
				evicted++
				if n := nodes[lowest]; n.To != x.depth || n.Score != tree.score(x.time, tree.gain(x), first(tree.spans()), second(tree.spans())) {
					t.Fatalf("seed %d, %s: %+v goes next, shown is %+v", seed, name, x, n)
				}
			}
		}
	}
	if evicted < 20 {
		t.Errorf("%d of the trees hold something", evicted)
	}
}

func first(a, _ span) span  { return a }
func second(_, b span) span { return b }
