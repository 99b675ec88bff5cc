package visualize_test

import (
	"log"
	"os"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/visualize"
)

// A picture of a graph, for dot -Tsvg.
func ExampleDot() {
	b := graph.New("gate")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(4)))
	b.Output("y", b.Mul("y", x, b.Map("g", "silu", x)))
	g, err := b.Graph()
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.CreateTemp("", "*.dot")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	if err := visualize.Dot(file, g, visualize.Options{}); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
}
