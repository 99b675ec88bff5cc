package prove

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/krait-ml/krait/graph"
)

// TestEveryRewiringIsRefused: in graphs that are right, giving any node another
// operand of the same type, or leaving any collective out, is refused.
func TestEveryRewiringIsRefused(t *testing.T) {
	for _, name := range []string{"block", "groups", "variadic", "term", "rows"} {
		a, err := txtar.ParseFile("testdata/prove/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		source, g := graphs(t, a)
		tried := 0
		for i, n := range g.Nodes {
			for j, arg := range n.Args {
				for _, v := range rewirings(g, n, j) {
					tried++
					n.Args[j] = v
					if _, err := Prove(source, g, Options{}); err == nil {
						t.Errorf("%s: %s takes %s for %s, and that is proved", name, n.Name(), v.Name, arg.Name)
					}
				}
				n.Args[j] = arg
			}
			if n.Op.Class == graph.Collective {
				tried++
				_, mutant := graphs(t, a)
				drop(mutant, mutant.Nodes[i])
				if _, err := Prove(source, mutant, Options{}); err == nil {
					t.Errorf("%s: proved without %s", name, n.Name())
				}
			}
		}
		if _, err := Prove(source, g, Options{}); err != nil || tried < 40 {
			t.Errorf("%s: %d mutants; the original: %v", name, tried, err)
		}
	}
}

// rewirings lists what a node could take for operand j: values that are there
// before it and have the same type, and values that differ in layout alone.
func rewirings(g *graph.Graph, n *graph.Node, j int) []*graph.Value {
	var out []*graph.Value
	for _, m := range g.Nodes {
		if m == n {
			break
		}
		for _, v := range m.Results {
			if v != n.Args[j] && bare(v.Type).Equal(bare(n.Args[j].Type)) {
				out = append(out, v)
			}
		}
	}
	return out
}

// drop removes a node; who took its results takes its operands.
func drop(g *graph.Graph, n *graph.Node) {
	g.Nodes = slices.DeleteFunc(g.Nodes, func(m *graph.Node) bool { return m == n })
	for i, r := range n.Results {
		for _, m := range g.Nodes {
			for j, v := range m.Args {
				if v == r {
					m.Args[j] = n.Args[i]
				}
			}
		}
		for j, o := range g.Outputs {
			if o.Value == r {
				g.Outputs[j].Value = n.Args[i]
			}
		}
	}
}

// TestCertificateIsTheSameEveryTime: nothing depends on the order of maps.
func TestCertificateIsTheSameEveryTime(t *testing.T) {
	a, err := txtar.ParseFile("testdata/prove/model.txtar")
	if err != nil {
		t.Fatal(err)
	}
	source, g := graphs(t, a)
	first := ""
	for range 20 {
		c, err := Prove(source, g, Options{})
		if err != nil {
			t.Fatal(err)
		}
		json, err := c.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(c, string(json)); first == "" {
			first = text
		} else if text != first {
			t.Fatalf("got\n%s\nand\n%s", first, text)
		}
	}
}
