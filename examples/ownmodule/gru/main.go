// Gru is a recurrent block from its equation to four ranks, in one file: the minimal GRU of "Were
// RNNs All We Needed?" (Feng et al., 2024, equation 3), as a language model with random weights.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lab/bench"
	"github.com/krait-ml/krait/lab/proof"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/visualize"
)

// h = (1 - z) h + z x with z = σ(gate), per channel c and sequence s, over tokens t.
func init() {
	graph.RegisterOp(graph.Op{Name: "min_gru", Doc: "h = (1 - z) h + z x with z = σ(gate), along each sequence: x gate h seg",
		Rule: graph.MustParseRule("t! c, t! c, s! c, s! f! -> t! c, s! c"), Operands: "aasi",
		States: []graph.StatePair{{Operand: 2, Result: 1, Kind: graph.SSMState}}, Work: []string{"7 t c"}})
	channels := func(c *kernels.Call) int { return c.Args[0].Cols }
	reference.Register("min_gru", func(c *kernels.Call) { scan(c, 0, channels(c)) })
	cpu.Register("min_gru", kernels.Kernel{Run: scan, Units: channels})
}

// scan computes channels lo to hi in float64; it serves as the kernel for CPUs, too.
func scan(c *kernels.Call, lo, hi int) {
	x, gate, state, seg, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Results[0]
	for s := range seg.Rows() {
		first, tokens, slot := seg.Segment(s)
		for j := lo; j < hi; j++ {
			h := reference.At(state, slot, j)
			for t := first; t < first+tokens; t++ {
				h += (reference.At(x, t, j) - h) / (1 + math.Exp(-reference.At(gate, t, j)))
				reference.Set(y, t, j, h)
			}
			reference.Set(state, slot, j, h)
		}
	}
}

// model is an embedding, blocks of h + out(gru(in n, gate n)) with n = norm h, and the logits.
func model(layers, width, inner int) (*graph.Graph, error) {
	b := graph.New("min-gru")
	ids := b.Input("ids", graph.TypeOf(graph.I32, graph.Symbol(graph.Tokens)))
	rows := b.Input("rows", graph.TypeOf(graph.I32, graph.Symbol(graph.Rows)))
	seg := b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))
	words, d, ch := graph.Units(256, 1), graph.Size(width), graph.Units(inner, 1) // ranks may own words and channels
	table := b.Param("table", graph.TypeOf(graph.F32, words, d), nil)
	h := b.Embedding("h", ids, table)
	for i := range layers {
		l := b.In("layers", i)
		n := l.RMSNorm("norm", h, nil, 1e-5)
		gate := l.MatMul("gate", n, l.Param("gate_w", graph.TypeOf(graph.F32, ch, d), nil))
		state := l.State("state", graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), ch))
		x := l.MatMul("in", n, l.Param("in_w", graph.TypeOf(graph.F32, ch, d), nil))
		y := l.Apply("y", "min_gru", nil, x, gate, state, seg)[0]
		h = l.Add("h", h, l.MatMul("out", y, l.Param("out_w", graph.TypeOf(graph.F32, d, ch), nil)))
	}
	b.Output("logits", b.MatMul("logits", b.SelectRows("last", b.RMSNorm("norm", h, nil, 1e-5), rows), table))
	return b.Graph()
}

// run runs the model on one rank, on four and on the simulated GPU, proves and draws it.
func run(ctx context.Context, w, dot io.Writer) error {
	g, err := model(2, 32, 64)
	if err != nil {
		return err
	}
	for _, o := range []krait.Options{{}, {Sharding: krait.Sharding{Ranks: 4}}, {Device: &cuda.Device{Driver: sim.New(sim.Options{})}}} {
		m, err := krait.New(g, krait.RandomWeights(g, 1), nil, o)
		if err != nil {
			return err
		}
		defer m.Close()
		out, err1 := m.GenerateIDs(ctx, []int{1, 2, 3}, krait.Generate{MaxTokens: 8})
		speed, err2 := bench.Measure(ctx, m, bench.Options{Batch: 1, Prompt: 64, Tokens: 8, Repeat: 3})
		if err := cmp.Or(err1, err2); err != nil {
			return err
		}
		fmt.Fprintf(w, "%d ranks: %v\n%.3g tokens/s %v\n", m.Ranks(), out.IDs, speed.Decode, m.Warnings)
	}
	certificate, sharded, err := proof.Of(ctx, g, krait.Sharding{Ranks: 4}, validate.Options{})
	if err != nil {
		return err
	}
	fmt.Fprint(w, certificate)
	return visualize.Dot(dot, sharded, visualize.Options{})
}

func main() {
	if err := run(context.Background(), os.Stderr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
