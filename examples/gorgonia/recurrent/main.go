// Recurrent builds a gated recurrent block in Gorgonia, and lets Krait split it over four ranks,
// prove it and draw it. Its results equal those of Gorgonia's own machine.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/interop/gorgonia"
	"github.com/krait-ml/krait/lab/proof"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/visualize"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

const batch, width, inner, steps = 3, 16, 32, 5

// block is one step of a gated recurrence, with n = x / rms(x):
//
//	z  = σ(n Wz + b)
//	h' = h + z (tanh(n Wh) - h)
//	y  = x + (h' · silu(n Wg)) Wo
type block struct {
	*G.ExprGraph
	x, h, next, y *G.Node
	nextIs, yIs   G.Value // after a run of Gorgonia's machine
}

func newBlock() *block {
	b := &block{ExprGraph: G.NewGraph()}
	weight := func(name string, shape ...int) *G.Node {
		return G.NodeFromAny(b.ExprGraph, random(shape...), G.WithName(name))
	}
	named := func(name string, n *G.Node) *G.Node {
		G.WithName(name)(n)
		return n
	}
	b.x = G.NewMatrix(b.ExprGraph, G.Float32, G.WithShape(batch, width), G.WithName("x"))
	b.h = G.NewMatrix(b.ExprGraph, G.Float32, G.WithShape(batch, inner), G.WithName("h"))
	mean := G.Must(G.Mean(G.Must(G.Square(b.x)), 1))
	n := named("norm", G.Must(G.BroadcastHadamardDiv(b.x, G.Must(G.Sqrt(G.Must(G.Add(mean, G.NewConstant(float32(1e-5)))))), nil, []byte{1})))
	z := named("z", G.Must(G.Sigmoid(G.Must(G.BroadcastAdd(G.Must(G.Mul(n, weight("Wz", width, inner))), weight("b", inner), nil, []byte{0})))))
	u := named("u", G.Must(G.Tanh(G.Must(G.Mul(n, weight("Wh", width, inner))))))
	b.next = named("h_next", G.Must(G.Add(b.h, G.Must(G.HadamardProd(z, G.Must(G.Sub(u, b.h)))))))
	g := G.Must(G.Mul(n, weight("Wg", width, inner)))
	gated := named("gated", G.Must(G.HadamardProd(b.next, G.Must(G.HadamardProd(g, G.Must(G.Sigmoid(g)))))))
	b.y = named("y", G.Must(G.Add(b.x, G.Must(G.Mul(gated, weight("Wo", inner, width))))))
	G.Read(b.next, &b.nextIs) // or the machine reuses its memory
	G.Read(b.y, &b.yIs)
	return b
}

var rng = rand.New(rand.NewPCG(1, 2))

// random is a tensor whose columns have the length 1.
func random(shape ...int) *tensor.Dense {
	values := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range values {
		values[i] = float32(rng.NormFloat64() / math.Sqrt(float64(shape[0])))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))
}

// inGorgonia runs a step on Gorgonia's machine.
func (b *block) inGorgonia(x, h *tensor.Dense) (next, y *tensor.Dense, err error) {
	machine := G.NewTapeMachine(b.ExprGraph)
	defer machine.Close()
	if err := G.Let(b.x, x); err != nil {
		return nil, nil, err
	}
	if err := G.Let(b.h, h); err != nil {
		return nil, nil, err
	}
	if err := machine.RunAll(); err != nil {
		return nil, nil, err
	}
	return b.nextIs.(*tensor.Dense), b.yIs.(*tensor.Dense), nil
}

// inKrait runs a step on Krait's engine.
func inKrait(e *exec.Engine, slot int, x, h *tensor.Dense) (next, y *tensor.Dense, err error) {
	inputs, err := gorgonia.Inputs(map[string]*tensor.Dense{"x": x, "h": h})
	if err != nil {
		return nil, nil, err
	}
	results, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: batch}}, Inputs: inputs})
	if err != nil {
		return nil, nil, err
	}
	var out [2]*tensor.Dense
	for i, name := range []string{"h_next", "y"} {
		t, err := results.Output(name)
		if err != nil {
			return nil, nil, err
		}
		view, err := gorgonia.Output(t)
		if err != nil {
			return nil, nil, err
		}
		out[i] = view.Clone().(*tensor.Dense) // the engine's memory, until its next step
	}
	return out[0], out[1], nil
}

func run(w, dot io.Writer) error {
	b := newBlock()
	g, weights, err := gorgonia.Graph(b.ExprGraph, gorgonia.GraphOptions{
		Name: "recurrent", Outputs: G.Nodes{b.next, b.y}, Units: map[string]int{"h": 1}}) // ranks own channels of h
	if err != nil {
		return err
	}
	four := krait.Sharding{Ranks: 4}
	engine, err := krait.NewEngine(g, weights, krait.Options{Sharding: four})
	if err != nil {
		return err
	}
	defer engine.Close()
	slot, err := engine.Alloc()
	if err != nil {
		return err
	}
	here, there := tensor.New(tensor.WithShape(batch, inner), tensor.Of(tensor.Float32)), tensor.New(tensor.WithShape(batch, inner), tensor.Of(tensor.Float32))
	worst := 0.0
	for step := range steps {
		x := random(batch, width)
		hereNext, hereY, err := b.inGorgonia(x, here)
		if err != nil {
			return err
		}
		thereNext, thereY, err := inKrait(engine, slot, x, there)
		if err != nil {
			return err
		}
		worst = max(worst, apart(hereY, thereY), apart(hereNext, thereNext))
		fmt.Fprintf(w, "step %d: y begins with %.4f\n", step, thereY.Float32s()[:4])
		here, there = hereNext.Clone().(*tensor.Dense), thereNext
	}
	fmt.Fprintf(w, "four ranks and Gorgonia's machine differ by at most %.0e\n\n", worst)
	certificate, sharded, err := proof.Of(context.Background(), g, four, validate.Options{})
	if err != nil {
		return err
	}
	fmt.Fprint(w, certificate)
	return visualize.Dot(dot, sharded, visualize.Options{})
}

// apart is the largest difference of two tensors.
func apart(a, b *tensor.Dense) (d float64) {
	for i, v := range a.Float32s() {
		d = max(d, math.Abs(float64(v-b.Float32s()[i])))
	}
	return d
}

func main() {
	if err := run(os.Stderr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
