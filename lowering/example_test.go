package lowering_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// A graph becomes a schedule per rank, which says what it takes before anything runs.
func Example() {
	b := graph.New("mlp")
	width, hidden := graph.Size(4), graph.Units(6, 1)
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), width))
	up := b.Map("up", "relu", b.MatMul("up_w", x, b.Param("w1", graph.TypeOf(graph.F32, hidden, width), nil)))
	b.Output("y", b.MatMul("y", up, b.Param("w2", graph.TypeOf(graph.F32, width, hidden), nil)))
	g, err := b.Graph()
	if err != nil {
		log.Fatal(err)
	}
	g, err = passes.Compile(g, passes.Options{Ranks: 2})
	if err != nil {
		log.Fatal(err)
	}
	schedules, err := lowering.Lower(g)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := lowering.NewPlan(schedules)
	if err != nil {
		log.Fatal(err)
	}
	for rank, p := range plan.Ranks {
		fmt.Println("rank", rank, "weights:", p.Weights, "bytes; activations:", p.Arena, "bytes;", p.Launches, "kernels")
	}
	for _, c := range plan.Collectives {
		fmt.Println(c.Kind, c.Name, c.Bytes, "bytes")
	}
	// Output:
	// rank 0 weights: 96 bytes; activations: 128·t bytes; 3 kernels
	// rank 1 weights: 96 bytes; activations: 128·t bytes; 3 kernels
	// all_reduce y_sum 16·t bytes
}
