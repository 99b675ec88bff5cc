package prove_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// A partitioned graph is held against its source, and its collectives against the fewest
// that are possible.
func Example() {
	b := graph.New("mlp")
	width, hidden := graph.Size(4), graph.Units(6, 1)
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), width))
	up := b.Map("up", "relu", b.MatMul("up_w", x, b.Param("w1", graph.TypeOf(graph.F32, hidden, width), nil)))
	b.Output("y", b.MatMul("y", up, b.Param("w2", graph.TypeOf(graph.F32, width, hidden), nil)))
	source, err := b.Graph()
	if err != nil {
		log.Fatal(err)
	}
	source, err = passes.Compile(source, passes.Options{Ranks: 2, Stop: graph.UnpackedStage})
	if err != nil {
		log.Fatal(err)
	}
	split, err := passes.Compile(source, passes.Options{Ranks: 2, Stop: graph.PartitionedStage})
	if err != nil {
		log.Fatal(err)
	}
	c, err := prove.Prove(source, split, prove.Options{})
	if err != nil {
		log.Fatal(err) // names the value that is wrong, and why
	}
	fmt.Println(c.Collectives, "collective;", c.Sent, "bytes sent by a rank;", c.SentOne, "for one token")
	// Output:
	// 1 collective; 16·t bytes sent by a rank; 16 for one token
}
