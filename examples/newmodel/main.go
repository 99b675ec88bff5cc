// Newmodel defines a block that is in no family, from the operations that there
// are, and partitions, proves and runs it. docs/new-model.md explains it.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/proof"
	"github.com/krait-ml/krait/lab/validate"
)

// model is two blocks of a scan over heads, a norm over all heads, and an MLP.
func model() (*graph.Graph, error) {
	const width, heads, head, groups, states, hidden = 16, 6, 4, 2, 3, 20
	b := graph.New("scan-mlp")
	h := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(width)))
	seg := b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
	for i := range 2 {
		l := b.In("layers", i)
		param := func(name string, dims ...graph.Dim) *graph.Value {
			return l.Param(name, graph.TypeOf(graph.F32, dims...), nil)
		}
		// Units are what ranks may own: heads, groups of heads, hidden units. The
		// model's width has none.
		d, inner, group, unit := graph.Size(width), graph.Units(heads*head, head), graph.Units(groups*states, states), graph.Units(hidden, 1)

		n := l.RMSNorm("norm", h, param("norm_w", d), 1e-5)
		x := l.MatMul("x", n, param("x_w", inner, d))
		dt := l.Map("delta", "softplus", l.MatMul("dt", n, param("dt_w", graph.Units(heads, 1), d)))
		B, C := l.MatMul("B", n, param("B_w", group, d)), l.MatMul("C", n, param("C_w", group, d))
		A := l.Map("A", "neg_exp", param("A_log", graph.Units(heads, 1)))
		state := l.State("state", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Units(heads, 1), graph.Size(head), graph.Size(states)))
		y := l.RMSNorm("y_norm", l.SSDScan("y", x, dt, A, B, C, state, seg), param("y_norm_w", inner), 1e-5)
		h = l.Add("after_scan", h, l.MatMul("out", y, param("out_w", d, inner)))

		n = l.RMSNorm("norm2", h, param("norm2_w", d), 1e-5)
		up := l.Map("act", "gelu", l.MatMul("up", n, param("up_w", unit, d)))
		h = l.Add("h", h, l.MatMul("down", up, param("down_w", d, unit)))
	}
	b.Output("out", h)
	return b.Graph()
}

// outputs runs three tokens on some ranks.
func outputs(g *graph.Graph, s krait.Sharding) ([]float32, error) {
	engine, err := krait.NewEngine(g, krait.RandomWeights(g, 1), krait.Options{Sharding: s})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	slot, err := engine.Alloc()
	if err != nil {
		return nil, err
	}
	x := make([]float32, 3*16)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	batch := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: 3}}, Inputs: map[string]graph.Array{"x": graph.ArrayOf(x, 3, 16)}}
	results, err := engine.Step(context.Background(), &batch)
	if err != nil {
		return nil, err
	}
	out, err := results.Output("out")
	if err != nil {
		return nil, err
	}
	return append([]float32(nil), out.Row(2)...), nil
}

func run(w io.Writer) error {
	g, err := model()
	if err != nil {
		return err
	}
	for _, s := range []krait.Sharding{{Ranks: 1}, {Ranks: 4}, {Ranks: 4, Strategy: "hoisted"}} {
		out, err := outputs(g, s)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d ranks %-8s %7.3f\n", s.Ranks, s.Strategy, out[:6])
	}
	certificate, _, err := proof.Of(context.Background(), g, krait.Sharding{Ranks: 4, Strategy: "hoisted"}, validate.Options{})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s", certificate)
	return nil
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
