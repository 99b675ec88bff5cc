package exec_test

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
)

// An engine runs batches of any sequences on the ranks of a schedule.
func Example() {
	b := graph.New("product")
	width := graph.Units(2, 1)
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), width))
	b.Output("y", b.MatMul("y", x, b.Param("w", graph.TypeOf(graph.F32, width, width), nil)))
	g, err := b.Graph()
	if err != nil {
		log.Fatal(err)
	}
	if g, err = passes.Compile(g, passes.Options{Ranks: 2}); err != nil {
		log.Fatal(err)
	}
	schedules, err := lowering.Lower(g)
	if err != nil {
		log.Fatal(err)
	}
	weights := func(string) (graph.Array, error) { return graph.ArrayOf([]float32{1, 2, 3, 4}, 2, 2), nil }
	e, err := exec.New(schedules, weights, exec.Options{Device: &cpu.Device{}})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	slot, err := e.Alloc() // a sequence's state
	if err != nil {
		log.Fatal(err)
	}
	r, err := e.Step(context.Background(), &exec.Batch{
		Sequences: []exec.Sequence{{Slot: slot, Len: 1}},
		Inputs:    map[string]graph.Array{"x": graph.ArrayOf([]float32{10, 1}, 1, 2)},
	})
	if err != nil {
		log.Fatal(err)
	}
	y, err := r.Output("y") // valid until the next step
	fmt.Println(y.Row(0), err)
	// Output: [12 34] <nil>
}
