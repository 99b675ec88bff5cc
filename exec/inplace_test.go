package exec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
	"pgregory.net/rapid"
)

// TestInPlace: an operation gives the same bits over operands that die as with memory of its own.
func TestInPlace(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.InPlace != nil {
			t.Run(op.Name, func(t *testing.T) {
				sets := everySet(t)
				prop.Check(t, func(t *rapid.T) { checkInPlace(t, op, sets) })
			})
		}
	}
}

func checkInPlace(t *rapid.T, op *graph.Op, sets map[string]kernels.Set) {
	c := drawOp(t, op, nil)
	over := rapid.Permutation(op.InPlace).Draw(t, "operands")
	over = over[:rapid.IntRange(1, len(over)).Draw(t, "dying")]
	dies, stays := c.copied(t, over, false), c.copied(t, over, true)
	if a, b := buffers(t, dies), buffers(t, stays); a != b-min(len(over), len(c.graph.Outputs)) {
		t.Fatalf("%d buffers where %v may be overwritten, %d where not", a, over, b)
	}
	b := exec.Batch{Sequences: []exec.Sequence{{Len: rapid.SampledFrom([]int{1, 2, 5, 9}).Draw(t, "tokens"), Rows: []int{}}}}
	c.fill(&b)
	for _, set := range sets {
		var out [2][]float32
		for i, g := range []*graph.Graph{dies, stays} {
			e := c.engineOf(t, g, set, 1)
			defer e.Close()
			if _, err := e.Alloc(); err != nil {
				t.Fatal(err)
			}
			step(t, e, &b)
			out[i] = output(t, e)
		}
		same(t, "in place", out[0], out[1], 0)
	}
}

// copied lets the operation read copies of some operands, which die there or are outputs, too.
func (c *opCase) copied(t *rapid.T, operands []int, outputs bool) *graph.Graph {
	var lines []string
	for line := range strings.Lines(graph.Print(c.graph)) {
		if strings.HasPrefix(line, "%y") {
			for _, k := range operands {
				lines = append(lines, fmt.Sprintf("%%c%d = times %%x%d {by=1.0}\n", k, k))
				line = strings.Replace(line, fmt.Sprintf(" %%x%d", k), fmt.Sprintf(" %%c%d", k), 1)
			}
		}
		lines = append(lines, line)
	}
	for _, k := range operands {
		if outputs {
			lines = append(lines, fmt.Sprintf("output c%d = %%c%d\n", k, k))
		}
	}
	g, err := graph.Parse(strings.Join(lines, ""))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func buffers(t *rapid.T, g *graph.Graph) int {
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return len(s[0].Buffers)
}
