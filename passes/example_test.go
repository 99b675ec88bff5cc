package passes_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
)

// An MLP for two ranks: hidden units are split, and what they add up to is summed over ranks.
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
	two, err := passes.Compile(g, passes.Options{Ranks: 2, Stop: graph.PartitionedStage})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(graph.Print(two))
	// Output:
	// graph "mlp" stage=partitioned ranks=2
	// input %x : f32[t 4]
	// param @w1 : f32[6/1 4] shard(0: split)
	// %up_w = matmul %x @w1 : f32[t 6/1] shard(1: split)
	// %up = relu %up_w : f32[t 6/1] shard(1: split)
	// param @w2 : f32[4 6/1] shard(1: split)
	// %y = matmul %up @w2 : f32[t 4] partial
	// %y_sum = all_reduce %y : f32[t 4]  # y adds up what ranks own; blocks or outputs need it whole
	// output y = %y_sum
}
