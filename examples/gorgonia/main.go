// Gorgonia feeds gorgonia.org tensors to a graph, as weights and as inputs, and
// looks at the result as one.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/interop/gorgonia"
	"gorgonia.org/tensor"
)

// run is silu(x wᵀ) for x[t 64] and w[3 64].
func run(x, w *tensor.Dense) (*tensor.Dense, error) {
	b := graph.New("projection")
	in := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(64)))
	weight := b.Param("w", graph.TypeOf(graph.F32, graph.Size(3), graph.Size(64)), nil)
	b.Output("y", b.Map("silu", "silu", b.MatMul("projected", in, weight)))
	g, err := b.Graph()
	if err != nil {
		return nil, err
	}
	engine, err := krait.NewEngine(g, gorgonia.Tensors(map[string]*tensor.Dense{"w": w}), krait.Options{})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	slot, err := engine.Alloc()
	if err != nil {
		return nil, err
	}
	inputs, err := gorgonia.Inputs(map[string]*tensor.Dense{"x": x})
	if err != nil {
		return nil, err
	}
	batch := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: x.Shape()[0]}}, Inputs: inputs}
	results, err := engine.Step(context.Background(), &batch)
	if err != nil {
		return nil, err
	}
	y, err := results.Output("y")
	if err != nil {
		return nil, err
	}
	return gorgonia.Output(y)
}

func main() {
	x := tensor.New(tensor.WithShape(2, 64), tensor.WithBacking(tensor.Range(tensor.Float32, 0, 128)))
	weights := [3 * 64]float32{0: 1, 64 + 1: 0.5, 128 + 2: -0.1} // row i takes a part of channel i
	y, err := run(x, tensor.New(tensor.WithShape(3, 64), tensor.WithBacking(weights[:])))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4v", y)
}
