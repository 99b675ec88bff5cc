// Define builds a small state-space block in Go from Krait's operations, prints
// it, draws it, and runs it on two sequences of different lengths.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/visualize"
)

// block is a gated scan over 8 channels with 4 states each. Sizes, sharding and
// costs follow from the operations; a wrong shape is an error from Graph.
func block() (*graph.Graph, error) {
	b := graph.New("gated scan")
	tokens, channels, states := graph.Symbol(graph.Tokens), graph.Units(8, 1), graph.Size(4)
	param := func(name string, dims ...graph.Dim) *graph.Value {
		return b.Param(name, graph.TypeOf(graph.F32, dims...), nil)
	}
	x := b.Input("x", graph.TypeOf(graph.F32, tokens, channels))
	seg := b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
	h := b.State("state", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), channels, states))

	delta := b.Map("delta", "softplus", b.MatMul("dt", x, param("dt_proj", channels, channels)))
	B := b.MatMul("B", x, param("B_proj", states, channels))
	C := b.MatMul("C", x, param("C_proj", states, channels))
	A := b.Map("A", "neg_exp", param("A_log", channels, states))
	y := b.SelectiveScan("y", x, delta, A, B, C, h, seg)
	b.Output("out", b.Mul("gated", y, b.Map("gate", "silu", x)))
	return b.Graph()
}

// random stands for a checkpoint: a tensor of small numbers for every parameter.
func random(g *graph.Graph) func(name string) (graph.Array, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(name string) (graph.Array, error) {
		v, _ := g.Value(name)
		rows, cols := v.Type.Dims[0].Len(), v.Type.Dims[1].Len()
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = float32(rng.NormFloat64()) / 4
		}
		return graph.ArrayOf(values, rows, cols), nil
	}
}

func run(w io.Writer, picture string) error {
	g, err := block()
	if err != nil {
		return err
	}
	fmt.Fprint(w, graph.Print(g))
	file, err := os.Create(picture)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := visualize.Dot(file, g, visualize.Options{}); err != nil {
		return err
	}
	engine, err := krait.NewEngine(g, random(g), krait.Options{Slots: 2})
	if err != nil {
		return err
	}
	defer engine.Close()
	var batch exec.Batch
	for _, tokens := range []int{3, 2} {
		slot, err := engine.Alloc()
		if err != nil {
			return err
		}
		batch.Sequences = append(batch.Sequences, exec.Sequence{Slot: slot, Len: tokens})
	}
	x := make([]float32, 5*8) // the tokens of both sequences, one after another
	for i := range x {
		x[i] = float32(i%5) - 2
	}
	batch.Inputs = map[string]graph.Array{"x": graph.ArrayOf(x, 5, 8)}
	results, err := engine.Step(context.Background(), &batch)
	if err != nil {
		return err
	}
	out, err := results.Output("out")
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	for i := range out.Rows() {
		fmt.Fprintf(w, "token %d: %6.3f\n", i, out.Row(i))
	}
	return nil
}

func main() {
	picture := filepath.Join(os.TempDir(), "block.dot")
	if err := run(os.Stdout, picture); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("\n%s is the picture: dot -Tsvg draws it\n", picture)
}
