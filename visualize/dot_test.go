package visualize

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// blocks is a graph of n blocks, the last of which differs when odd is set.
func blocks(t *testing.T, n int, odd bool) *graph.Graph {
	t.Helper()
	b := graph.New("g")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(4)))
	for i := range n {
		l := b.In("layers", i)
		w := l.Param("w", graph.TypeOf(graph.F32, graph.Size(4), graph.Size(4)), nil)
		function := "silu"
		if odd && i == n-1 {
			function = "relu"
		}
		x = l.Add("h", x, l.Map("act", function, l.MatMul("y", x, w)))
	}
	b.Output("out", x)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		name    string
		odd     bool
		o       Options
		matmuls int
		labels  []string
	}{
		{"folded", false, Options{}, 1, []string{"layers.0 and the 3 after it, which are the same"}},
		{"a block that differs", true, Options{}, 2, []string{"layers.0 and the 2 after it, which are the same", `label="layers.3"`}},
		{"unfolded", false, Options{Unfolded: true}, 4, []string{`label="layers.2"`}},
		{"one block", false, Options{Block: "layers.1"}, 1, []string{`label="layers.1"`, `label="layers.0.h"`}},
	} {
		g := blocks(t, 4, c.odd)
		text := Dot(g, c.o)
		if n := strings.Count(text, "\\nmatmul"); n != c.matmuls {
			t.Errorf("%s: %d matmuls drawn, want %d in\n%s", c.name, n, c.matmuls, text)
		}
		for _, l := range c.labels {
			if !strings.Contains(text, l) {
				t.Errorf("%s: no %s in\n%s", c.name, l, text)
			}
		}
		for range 20 {
			if Dot(blocks(t, 4, c.odd), c.o) != text {
				t.Fatalf("%s: two drawings of one graph differ", c.name)
			}
		}
	}
}
