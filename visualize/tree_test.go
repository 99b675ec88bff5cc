package visualize

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/session/prefix"
)

// TestTree: each node and edge is drawn, and the one of the lowest score is marked.
func TestTree(t *testing.T) {
	nodes := []prefix.Node{
		{Parent: 2, From: 1000, To: 2500, State: true, Time: 1, Bytes: 5e6, Score: 0.5, Candidate: true},
		{Parent: 2, From: 1000, To: 1700, State: true, Time: 2, Bytes: 4e6, Score: 0.5, Candidate: true},
		{Parent: -1, From: 0, To: 1000, Time: 2, Bytes: 1e6, Score: 0.1},
	}
	text := drawTree(nodes, "a <tree>")
	explained(t, "tree", text)
	for _, want := range []string{"+1,500", "+700", "+1,000", "2,500 tokens", "5.0 MB", "used at 2.0 s", "a &lt;tree&gt;", "what would be evicted next"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Count(text, "->") != 3 || strings.Count(text, `penwidth="2"`) != 1 {
		t.Errorf("3 edges and a frame are wanted:\n%s", text)
	}
	if lowest(nodes) != 0 {
		t.Errorf("node %d goes next; of equals it is the older", lowest(nodes))
	}
	if empty := drawTree(nil, "empty"); !strings.Contains(empty, "root") {
		t.Errorf("an empty tree has a root:\n%s", empty)
	}
}
