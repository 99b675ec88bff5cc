package visualize

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

// TestSides: a comparison has the first side's frames left of the second's, and in each the model
// left of the kinds of blocks.
func TestSides(t *testing.T) {
	path, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("NOT TESTED: there is no dot of Graphviz, so places of frames are not known")
	}
	_, g, err := checkpoint.Describe("../testdata/golden/jamba")
	if err != nil {
		t.Fatal(err)
	}
	var sides []Side
	for _, ranks := range []int{2, 8} {
		split, err := passes.Compile(g, passes.Options{Ranks: ranks, Stop: graph.PartitionedStage})
		if err != nil {
			t.Fatal(err)
		}
		sides = append(sides, Side{[]string{"few", "", "many"}[ranks/4], split})
	}
	var text bytes.Buffer
	if err := Compare(&text, sides[0], sides[1], Options{Detail: Blocks}); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(path, "-Tjson")
	run.Stdin = &text
	data, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Objects []struct{ Name, Label, BB string }
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	// left and right edges of the models, and of all frames of a side
	type edges struct{ model, left, right float64 }
	var found [2]edges
	for i := range found {
		found[i].left = 1e9
	}
	for _, o := range out.Objects {
		box := readBox(t, o.BB)
		for i, s := range sides {
			if !strings.Contains(o.Label, "<b>"+s.Name+"</b>") {
				continue
			}
			if strings.Contains(o.Label, "the model") {
				found[i].model = box[0]
			}
			found[i].left, found[i].right = min(found[i].left, box[0]), max(found[i].right, box[2])
		}
	}
	a, b := found[0], found[1]
	if a.right == 0 || a.model != a.left || b.model != b.left || a.right > b.left {
		t.Errorf("frames are out of order: %+v", found)
	}
}

// readBox reads the corners of a box.
func readBox(t *testing.T, text string) (box [4]float64) {
	t.Helper()
	if text == "" {
		return box
	}
	if err := json.Unmarshal([]byte("["+text+"]"), &box); err != nil {
		t.Fatal(err)
	}
	return box
}
