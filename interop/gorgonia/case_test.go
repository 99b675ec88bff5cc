package gorgonia_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/graphgen"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// sizes are those at which tilings go wrong: one, primes, and around 64.
var sizes = []int{1, 2, 3, 5, 7, 13, 31, 63, 64, 65, 67}

// matrix is what both sides compute with: krait in float32, gorgonia in float64.
type matrix struct {
	rows, cols int
	v          []float64
}

// matrixOf fills a matrix element by element, with what float32 can hold.
func matrixOf(rows, cols int, f func(i, j int) float64) matrix {
	m := matrix{rows, cols, make([]float64, rows*cols)}
	for i := range rows {
		for j := range cols {
			m.v[i*cols+j] = float64(float32(f(i, j)))
		}
	}
	return m
}

func (m matrix) at(i, j int) float64 { return m.v[i*m.cols+j] }

func (m matrix) transposed() matrix {
	return matrixOf(m.cols, m.rows, func(i, j int) float64 { return m.at(j, i) })
}

// row is row i by itself, rowsFrom n rows from row i on.
func (m matrix) row(i int) matrix         { return m.rowsFrom(i, 1) }
func (m matrix) rowsFrom(i, n int) matrix { return matrix{n, m.cols, m.v[i*m.cols : (i+n)*m.cols]} }

// colsFrom is n columns from column j on.
func (m matrix) colsFrom(j, n int) matrix {
	return matrixOf(m.rows, n, func(i, k int) float64 { return m.at(i, j+k) })
}

// beside concatenates matrices of rows rows along the columns.
func beside(rows int, parts ...[]float64) []float64 {
	var all []float64
	for i := range rows {
		for _, p := range parts {
			n := len(p) / rows
			all = append(all, p[i*n:(i+1)*n]...)
		}
	}
	return all
}

// filled is a matrix of m's shape with one value everywhere.
func (m matrix) filled(v float64) matrix {
	return matrixOf(m.rows, m.cols, func(int, int) float64 { return v })
}

func float32s(v []float64) []float32 {
	f := make([]float32, len(v))
	for i, x := range v {
		f[i] = float32(x)
	}
	return f
}

// evaluate runs an expression in a graph of its own. Gorgonia confuses nodes of
// one graph that it should not, see the package's documentation.
func evaluate(expression func(x []*G.Node) *G.Node, operands ...matrix) []float64 {
	g := G.NewGraph()
	nodes := make([]*G.Node, len(operands))
	for i, m := range operands {
		value := tensor.New(tensor.WithShape(m.rows, m.cols), tensor.WithBacking(append([]float64(nil), m.v...)))
		nodes[i] = G.NodeFromAny(g, value, G.WithName(fmt.Sprint("x", i)))
	}
	y := expression(nodes)
	vm := G.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		panic(err)
	}
	switch v := y.Value().Data().(type) {
	case float64:
		return []float64{v}
	case []float64:
		return append([]float64(nil), v...)
	}
	panic(fmt.Sprintf("gorgonia gives a %T", y.Value().Data()))
}

// opCase is one operation on drawn shapes: krait's graph of it, and a batch.
type opCase struct {
	t      *rapid.T
	rng    *rand.Rand
	op     *graph.Op
	b      *graph.Builder
	leaves int
	params map[string]graph.Array
	batch  exec.Batch
	tokens int
	owner  []int // by token: its sequence
	first  []int // by sequence: its first token
	past   []int // by sequence: its tokens before the step, nil when that does not matter
	states []state
}

// state is what sequences keep, as it is before the step.
type state struct {
	name   string
	before [][]float64 // by sequence
}

// operand is a value of krait's graph and what is in it.
type operand struct {
	value *graph.Value
	matrix
}

// newCase draws a batch: one that is long, or for operations with a state several that are short.
func newCase(t *rapid.T, op *graph.Op) *opCase {
	c := &opCase{t: t, op: op, b: graph.New("op"), params: map[string]graph.Array{},
		rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
	c.batch.Inputs = map[string]graph.Array{}
	for i := range rapid.IntRange(1, 3).Draw(t, "sequences") {
		n := rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(t, "tokens")
		if i == 0 && op.States == nil {
			n = c.size("t")
		}
		c.batch.Sequences = append(c.batch.Sequences, exec.Sequence{Slot: i, Len: n, Rows: []int{}})
		c.first = append(c.first, c.tokens)
		c.owner = append(c.owner, slices.Repeat([]int{i}, n)...)
		c.tokens += n
	}
	return c
}

func (c *opCase) size(letter string) int { return rapid.SampledFrom(sizes).Draw(c.t, letter) }

// few draws a size of an axis that multiplies with others.
func (c *opCase) few(letter string) int { return rapid.IntRange(1, 5).Draw(c.t, letter) }

func (c *opCase) normal(int, int) float64 { return c.rng.NormFloat64() }

// attr draws an attribute; most is the size of the letter that limits it.
func (c *opCase) attr(name string, most int) any {
	i := slices.IndexFunc(c.op.Attrs, func(a graph.Attr) bool { return a.Name == name })
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(c.t, name) }
	return graphgen.Attr(c.op.Attrs[i], func(byte) int { return most }, pick)
}

func (c *opCase) name() string {
	c.leaves++
	return fmt.Sprint("x", c.leaves)
}

// input is an activation with a row per token.
func (c *opCase) input(width graph.Dim) operand { return c.inputOf(width, c.normal) }

func (c *opCase) inputOf(width graph.Dim, f func(i, j int) float64) operand {
	m, name := matrixOf(c.tokens, width.Len(), f), c.name()
	c.batch.Inputs[name] = graph.ArrayOf(float32s(m.v), m.rows, m.cols)
	return operand{c.b.Input(name, graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), width)), m}
}

// perState is an activation with n numbers per token and channel.
func (c *opCase) perState(d, n int, f func(i, j int) float64) operand {
	m, name := matrixOf(c.tokens, d*n, f), c.name()
	c.batch.Inputs[name] = graph.ArrayOf(float32s(m.v), m.rows, d, n)
	return operand{c.b.Input(name, graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(d), graph.Size(n))), m}
}

// perToken is an activation with a number per token.
func (c *opCase) perToken(f func(i, j int) float64) operand {
	m, name := matrixOf(c.tokens, 1, f), c.name()
	c.batch.Inputs[name] = graph.ArrayOf(float32s(m.v), m.rows)
	return operand{c.b.Input(name, graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens))), m}
}

// param is a parameter in f32.
func (c *opCase) param(f func(i, j int) float64, dims ...graph.Dim) operand {
	m, name := matrixOf(1, dims[len(dims)-1].Len(), f), c.name()
	shape := []int{m.cols}
	if len(dims) == 2 {
		m = matrixOf(dims[0].Len(), m.cols, f)
		shape = []int{m.rows, m.cols}
	}
	c.params[name] = graph.ArrayOf(float32s(m.v), shape...)
	return operand{c.b.Param(name, graph.TypeOf(graph.F32, dims...), nil), m}
}

// weight is a tensor in one of the formats of checkpoints, as a matrix with the
// last axis for its columns.
func (c *opCase) weight(shape ...int) operand {
	cols := shape[len(shape)-1]
	rows := graph.Array{Shape: shape}.Elems() / cols
	d := rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16, graph.F16}).Draw(c.t, "format")
	name := c.name()
	a, err := graph.ArrayOf(float32s(matrixOf(rows, cols, c.normal).v), shape...).Convert(d)
	c.must(err)
	c.params[name] = a
	exact := a.Float32s()
	m := matrixOf(rows, cols, func(i, j int) float64 { return float64(exact[i*cols+j]) })
	var dims []graph.Dim
	for _, n := range shape {
		dims = append(dims, graph.Size(n))
	}
	return operand{c.b.Param(name, graph.TypeOf(d, dims...), nil), m}
}

// state has a row per sequence.
func (c *opCase) state(dims ...graph.Dim) operand {
	n := 1
	for _, d := range dims {
		n *= d.Len()
	}
	m, name := matrixOf(len(c.batch.Sequences), n, c.normal), c.name()
	o := operand{c.b.State(name, graph.TypeOf(graph.F32, append([]graph.Dim{graph.Symbol(graph.Seqs)}, dims...)...)), m}
	before := make([][]float64, m.rows)
	for i := range before {
		before[i] = m.row(i).v
	}
	c.states = append(c.states, state{name, before})
	return o
}

// cache is a state with a row per token that each sequence had before.
func (c *opCase) cache(width graph.Dim) (operand, state) {
	st := state{name: c.name()}
	for _, n := range c.past {
		st.before = append(st.before, matrixOf(n, width.Len(), c.normal).v)
	}
	c.states = append(c.states, st)
	t := graph.TypeOf(graph.F32, graph.Symbol(graph.Seqs), graph.Symbol(graph.Cached), width)
	return operand{value: c.b.State(st.name, t)}, st
}

// drawPast draws how many tokens the sequences had before: few, or about as many
// as a cache has room for at first and as attention looks at together.
func (c *opCase) drawPast() operand {
	for range c.batch.Sequences {
		c.past = append(c.past, rapid.SampledFrom([]int{0, 1, 2, 5, 63, 64, 127, 130}).Draw(c.t, "past"))
	}
	return operand{value: c.b.Input("past", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs)))}
}

func (c *opCase) segments() operand {
	return operand{value: c.b.Input("seg", graph.TypeOf(graph.I32, graph.Symbol(graph.Seqs), graph.Size(3)))}
}

// apply finishes krait's graph.
func (c *opCase) apply(attrs graph.Attrs, operands ...operand) {
	var args []*graph.Value
	for _, o := range operands {
		args = append(args, o.value)
	}
	for i, v := range c.b.Apply("y", c.op.Name, attrs, args...) {
		if v != nil && !slices.ContainsFunc(c.op.States, func(p graph.StatePair) bool { return p.Result == i }) {
			c.b.Output(v.Name, v)
		}
	}
}

// run steps krait's graph with the kernels given. It returns the results and then
// each state, sequence by sequence.
func (c *opCase) run(set kernels.Set) [][]float32 {
	g, err := c.b.Graph()
	c.must(err)
	s, err := lowering.Lower(g)
	c.must(err)
	find := func(name string) (graph.Array, error) { return c.params[name], nil }
	e, err := exec.New(s, find, exec.Options{Device: &cpu.Device{Kernels: set, Workers: 2}, Slots: len(c.batch.Sequences)})
	c.must(err)
	defer e.Close()
	for _, q := range c.batch.Sequences {
		_, err := e.Alloc()
		c.must(err)
		if c.past != nil {
			c.must(e.SetLen(q.Slot, c.past[q.Slot]))
		}
		for _, st := range c.states {
			c.must(e.SetState(q.Slot, st.name, float32s(st.before[q.Slot])))
		}
	}
	given, err := e.Step(context.Background(), &c.batch)
	c.must(err)
	var results [][]float32
	for _, o := range g.Outputs {
		y, err := given.Output(o.Name)
		c.must(err)
		var all []float32
		for i := range y.Rows() {
			all = append(all, y.Row(i)...)
		}
		results = append(results, all)
	}
	for _, st := range c.states {
		var all []float32
		for _, q := range c.batch.Sequences {
			one, err := e.State(q.Slot, st.name)
			c.must(err)
			all = append(all, one...)
		}
		results = append(results, all)
	}
	return results
}

func (c *opCase) must(err error) {
	if err != nil {
		c.t.Helper()
		c.t.Fatal(err)
	}
}
