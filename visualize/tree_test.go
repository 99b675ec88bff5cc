package visualize

import (
	"encoding/xml"
	"io"
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

// TestChart: it is XML, and has a line for each line.
func TestChart(t *testing.T) {
	c := Chart{Title: "a & b", X: "x", Y: "y", Ticks: []string{"1", "2"}, Lines: []Line{
		{"one", []float64{0, 0.5}, "#000000", ""}, {"two", []float64{0.71, 1. / 3}, "#1f5fa8", "4 3"}}}
	text := c.svg()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// 80 % is at the top, so 0 is at the bottom and 50 % at 3/8 of the height.
	for _, want := range []string{`d="M194.0 360.0L454.0 160.0"`, ">80 %<", "a &amp; b", `stroke-dasharray="4 3"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, ">90 %<") || text != c.svg() {
		t.Errorf("not what is wanted:\n%s", text)
	}
	empty := Chart{}
	if !strings.HasSuffix(empty.svg(), "</svg>\n") {
		t.Error("an empty chart is none")
	}
}
