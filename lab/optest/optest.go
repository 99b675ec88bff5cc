// Package optest tests operations registered with [graph.RegisterOp] as Krait's own are tested: it
// compares their kernels with what their rows declare.
//
//	func TestSoftsign(t *testing.T) { optest.Check(t, "acme_softsign") }
package optest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/bail"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/kernels"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
)

// Graphs is how many random graphs Check draws.
const Graphs = 60

// Check draws random graphs with the operation: axes with and without units, packed axes, sizes of
// 1 and sizes that ranks do not divide, partial sums as operands. The compiler, and a random draw,
// lay each out over 2 to 5 ranks. A layout that the proof accepts runs in float64 by the reference
// kernel, and every value must equal that of the graph on one rank: this tests the row's Rule and
// Linear. Then the graph runs on the CPU, whole and split, against the reference kernel, with
// results in new buffers and in place (InPlace), and with each sequence alone, whose results must
// be bitwise equal. A failure names the graph's seed.
//
// Activations are random numbers of about 1, for which kernels must give finite results. F32
// results may differ by 1e-4 of the largest one.
func Check(t testing.TB, op string) {
	t.Helper()
	if err := check(t.Context(), op, Graphs); err != nil {
		t.Fatalf("operation %s: %v", op, err)
	}
}

// counts says what the graphs were good for.
type counts struct{ with, proved int }

func check(ctx context.Context, op string, graphs int) error {
	row, ok := graph.Lookup(op)
	if !ok {
		return graph.Unknown(op)
	}
	if row.Class != graph.Compute || row.Rule == nil {
		return fmt.Errorf("only operations with a rule are checked")
	}
	if _, ok := reference.Kernels[op]; !ok {
		return fmt.Errorf("it has no reference kernel: add one with reference.Register")
	}
	if _, ok := kernelscpu.Kernels[op]; !ok {
		return fmt.Errorf("it has no kernel for the CPU: add one with cpu.Register")
	}
	var n counts
	for seed := range uint64(graphs) {
		source := graphgen.Source(seed, graphgen.Options{Ops: []string{op}, Nodes: 1 + int(seed%2), Square: seed%5 == 0})
		if err := n.one(ctx, source, row, seed); err != nil {
			return fmt.Errorf("seed %d: %w\n%s", seed, err, graph.Print(source))
		}
	}
	switch {
	case n.with < graphs/10:
		return fmt.Errorf("of %d random graphs only %d have it: its rule or Refuse take few operands", graphs, n.with)
	case n.proved == 0:
		return fmt.Errorf("none of %d graphs could be laid over ranks", n.with)
	}
	return nil
}

// one checks a graph, and returns the error with which a function that it calls panics.
func (n *counts) one(ctx context.Context, source *graph.Graph, row *graph.Op, seed uint64) (err error) {
	defer bail.Catch(&err)
	model := bail.Of(passes.Compile(source, passes.Options{Stop: graph.ModelStage}))
	if !has(model, row) {
		return nil
	}
	n.with++
	ranks := 2 + int(seed%4)
	unpacked := bail.Of(passes.Compile(model, passes.Options{Stop: graph.UnpackedStage, Ranks: ranks}))
	if g, err := passes.Compile(unpacked, passes.Options{Stop: graph.PartitionedStage, Ranks: ranks}); err == nil {
		if _, err := prove.Prove(unpacked, g, prove.Options{}); err != nil {
			panic(fmt.Errorf("compiled for %d ranks, and not proved: %w", ranks, err))
		}
		n.proved++
		executed(ctx, model, g, seed)
		runs(ctx, model, g, row, seed)
	}
	for try := range uint64(4) {
		g := graphgen.Partition(seed+try<<32, model, ranks)
		if g == nil {
			continue
		}
		if _, err := prove.Prove(model, g, prove.Options{}); err != nil {
			continue // drawn at random: most are wrong
		}
		n.proved++
		executed(ctx, model, g, seed)
	}
	return nil
}

func has(g *graph.Graph, row *graph.Op) bool {
	return slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == row })
}

// executed runs a graph on ranks in float64.
func executed(ctx context.Context, model, g *graph.Graph, seed uint64) {
	r, err := validate.Run(ctx, model, g, validate.Options{Seed: seed + 1})
	if err != nil {
		panic(fmt.Errorf("the rule lets it be split on %d ranks so, and the reference kernel then gives other numbers: %w\n%s", g.Ranks, err, graph.Print(g)))
	}
	for _, p := range r.Parts {
		if p.Skipped != "" {
			panic(fmt.Errorf("it cannot be run: %s", p.Skipped))
		}
	}
}

// runs compares the CPU's kernel with the reference kernel, and with itself in other batches.
func runs(ctx context.Context, model, split *graph.Graph, row *graph.Op, seed uint64) {
	kept := keeping(model, row)
	b := newBatch(model, seed)
	want := b.run(ctx, model, reference.Kernels, b.together())
	set := kernelscpu.Kernels
	whole := b.run(ctx, model, set, b.together())
	near("the CPU's kernel and the reference kernel", whole, want, 1e-4)
	for _, other := range []struct {
		what  string
		graph *graph.Graph
		steps [][]int
		share float64
	}{
		{"operands that are kept and results in their place (InPlace)", kept, b.together(), 0},
		{"a sequence alone and in a batch", model, b.alone(), 0},
		{fmt.Sprintf("one rank and %d", split.Ranks), split, b.together(), 1e-4},
	} {
		got := b.run(ctx, other.graph, set, other.steps)
		near("on the CPU, "+other.what, got, whole, other.share)
	}
}

// keeping returns a graph whose outputs include the operation's operands, so that no result can
// overwrite them.
func keeping(model *graph.Graph, row *graph.Op) *graph.Graph {
	g := bail.Of(graph.Parse(graph.Print(model)))
	for _, n := range g.Nodes {
		if n.Op != row {
			continue
		}
		for _, v := range n.Args {
			if v.Def.Op.Class == graph.Compute && !slices.ContainsFunc(g.Outputs, func(o graph.Output) bool { return o.Name == v.Name }) {
				bail.If(g.AddOutput(v.Name, v))
			}
		}
	}
	return g
}

// batch is three sequences with weights and inputs for a graph.
type batch struct {
	lengths []int
	graph   *graph.Graph
	params  map[string]graph.Array
	inputs  map[string][]graph.Array // by sequence
	names   []string                 // of the graph's outputs
}

func newBatch(g *graph.Graph, seed uint64) *batch {
	rng := rand.New(rand.NewPCG(seed, 5))
	b := &batch{lengths: []int{1, 5, 1 + rng.IntN(8)}, graph: g, params: map[string]graph.Array{}, inputs: map[string][]graph.Array{}}
	draw := func(shape ...int) graph.Array {
		values := make([]float32, graph.Array{Shape: shape}.Elems())
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		return graph.ArrayOf(values, shape...)
	}
	for _, n := range g.Leaves("param") {
		var shape []int
		for _, d := range n.Results[0].Type.Dims {
			shape = append(shape, d.Len())
		}
		a := draw(shape...)
		if c, err := a.Convert(n.Results[0].Type.DType); err == nil {
			a = c
		}
		b.params[n.Name()] = a // the drawn graphs store no parameter elsewhere
	}
	for _, n := range g.Leaves("input") {
		t := n.Results[0].Type
		if t.DType != graph.F32 || t.Dims[0].Sym != graph.Tokens {
			continue // the engine makes it
		}
		for _, tokens := range b.lengths {
			shape := []int{tokens}
			for _, d := range t.Dims[1:] {
				shape = append(shape, d.Len())
			}
			b.inputs[n.Name()] = append(b.inputs[n.Name()], draw(shape...))
		}
	}
	for _, o := range g.Outputs {
		b.names = append(b.names, o.Name)
	}
	return b
}

// together and alone return the sequences of each step.
func (b *batch) together() [][]int { return [][]int{{0, 1, 2}} }
func (b *batch) alone() [][]int    { return [][]int{{1}, {0}, {2}} }

// run returns the outputs and states by name and sequence.
func (b *batch) run(ctx context.Context, g *graph.Graph, set kernels.Set, steps [][]int) map[string][]float32 {
	fused := bail.Of(passes.Compile(g, passes.Options{Stop: graph.FusedStage, Ranks: g.Ranks}))
	s := bail.Of(lowering.Lower(fused))
	e, err := exec.New(s, func(name string) (graph.Array, error) { return b.params[name], nil },
		exec.Options{Device: &cpu.Device{Kernels: set, Workers: 2}, Slots: len(b.lengths)})
	bail.If(err)
	defer e.Close()
	slots := make([]int, len(b.lengths))
	for i := range slots {
		slots[i] = bail.Of(e.Alloc())
	}
	out := map[string][]float32{}
	for range 2 { // the second continues from the state of the first
		for _, step := range steps {
			b.step(ctx, e, step, slots, out)
		}
	}
	for _, st := range e.States() {
		for i, slot := range slots {
			values := bail.Of(e.State(slot, st.Name))
			out[fmt.Sprintf("state %s of sequence %d", st.Name, i)] = values
		}
	}
	return out
}

// step runs some sequences in one step, and adds their outputs.
func (b *batch) step(ctx context.Context, e *exec.Engine, step, slots []int, out map[string][]float32) {
	q := exec.Batch{Inputs: map[string]graph.Array{}}
	for _, i := range step {
		q.Sequences = append(q.Sequences, exec.Sequence{Slot: slots[i], Len: b.lengths[i]})
	}
	for name, list := range b.inputs {
		var all graph.Array
		for _, i := range step {
			a := list[i]
			if all.Shape == nil {
				all = graph.Array{DType: a.DType, Shape: slices.Clone(a.Shape)}
				all.Shape[0] = 0
			}
			all.Shape[0] += a.Shape[0]
			all.Data = append(all.Data, a.Data...)
		}
		q.Inputs[name] = all
	}
	r := bail.Of(e.Step(ctx, &q))
	for _, name := range b.names {
		t, sym, err := r.OutputOf(name)
		bail.If(err)
		row := 0
		for _, i := range step {
			rows := map[graph.Sym]int{graph.Tokens: b.lengths[i], graph.Rows: 1, graph.Seqs: 1}[sym]
			key := fmt.Sprintf("output %s of sequence %d", name, i)
			for range rows {
				out[key] = append(out[key], t.Row(row)...)
				row++
			}
		}
	}
}

// near compares results; share is of the largest of them.
func near(what string, got, want map[string][]float32, share float64) {
	for name, w := range want {
		g := got[name]
		if len(g) != len(w) {
			panic(fmt.Errorf("%s: %s has %d numbers, and %d", what, name, len(g), len(w)))
		}
		largest := 1.0
		for _, v := range w {
			if a := math.Abs(float64(v)); a > largest {
				largest = a
			}
		}
		for i := range w {
			if d := math.Abs(float64(g[i]) - float64(w[i])); !(d <= share*largest) && !(g[i] != g[i] && w[i] != w[i]) {
				panic(fmt.Errorf("%s differ: %s, number %d, is %g and %g", what, name, i, g[i], w[i]))
			}
		}
	}
}
