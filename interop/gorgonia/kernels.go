package gorgonia

import (
	"fmt"

	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Kernels returns the operations that Gorgonia's machine computes, each call as an expression graph
// of its own, in float64: products, biases, sums, activations and RMS norms. Operations along
// tokens, such as scans, convolutions and attention, are not among them: Gorgonia has none.
func Kernels() kernels.Set {
	set := kernels.Set{}
	for name := range expressions {
		set[name] = kernels.Kernel{
			Units: func(*kernels.Call) int { return 1 },
			Run:   func(c *kernels.Call, _, _ int) { run(name, c) },
		}
	}
	return set
}

// expression returns the results of a call, of its operands.
type expression func(c *kernels.Call, x G.Nodes) G.Nodes

var expressions = map[string]expression{
	"matmul":       one(func(x G.Nodes) *G.Node { return G.Must(G.Mul(x[0], G.Must(G.Transpose(x[1])))) }),
	"bias":         one(func(x G.Nodes) *G.Node { return biased(x[0], x[1]) }),
	"add":          one(func(x G.Nodes) *G.Node { return G.Must(G.Add(x[0], x[1])) }),
	"mul":          one(func(x G.Nodes) *G.Node { return G.Must(G.HadamardProd(x[0], x[1])) }),
	"silu":         one(func(x G.Nodes) *G.Node { return swish(x[0]) }),
	"sigmoid":      one(func(x G.Nodes) *G.Node { return G.Must(G.Sigmoid(x[0])) }),
	"tanh":         one(func(x G.Nodes) *G.Node { return G.Must(G.Tanh(x[0])) }),
	"softplus":     one(func(x G.Nodes) *G.Node { return G.Must(G.Softplus(x[0])) }),
	"neg_exp":      one(func(x G.Nodes) *G.Node { return G.Must(G.Neg(G.Must(G.Exp(x[0])))) }),
	"rmsnorm":      func(c *kernels.Call, x G.Nodes) G.Nodes { return G.Nodes{normed(c, x[0], x[1])} },
	"unit_rmsnorm": func(c *kernels.Call, x G.Nodes) G.Nodes { return G.Nodes{normed(c, x[0], nil)} },

	// Operations that the compiler fuses neighbours to.
	"silu_mul":      one(func(x G.Nodes) *G.Node { return G.Must(G.HadamardProd(swish(x[0]), x[1])) }),
	"bias_softplus": one(func(x G.Nodes) *G.Node { return G.Must(G.Softplus(biased(x[0], x[1]))) }),
	"add_rmsnorm": func(c *kernels.Call, x G.Nodes) G.Nodes {
		sum := G.Must(G.Add(x[0], x[1]))
		return G.Nodes{sum, normed(c, sum, x[2])}
	},
}

// vectors are the operands, by operation, that have one axis: a number per column of the others.
var vectors = map[string]int{"bias": 1, "bias_softplus": 1, "rmsnorm": 1, "add_rmsnorm": 2}

// one is an expression with one result and no attributes.
func one(f func(x G.Nodes) *G.Node) expression {
	return func(_ *kernels.Call, x G.Nodes) G.Nodes { return G.Nodes{f(x)} }
}

func biased(x, b *G.Node) *G.Node { return G.Must(G.BroadcastAdd(x, b, nil, []byte{0})) }

func swish(x *G.Node) *G.Node { return G.Must(G.HadamardProd(x, G.Must(G.Sigmoid(x)))) }

// normed is each row of x by its root mean square, times a weight unless that is nil.
func normed(c *kernels.Call, x, w *G.Node) *G.Node {
	mean := G.Must(G.Mean(G.Must(G.Square(x)), 1))
	rms := G.Must(G.Sqrt(G.Must(G.Add(mean, G.NewConstant(c.Attrs["eps"].(float64))))))
	y := G.Must(G.BroadcastHadamardDiv(x, rms, nil, []byte{1}))
	if w != nil {
		y = G.Must(G.BroadcastHadamardProd(y, w, nil, []byte{0}))
	}
	return y
}

// run evaluates the expression of a call of an operation.
func run(op string, c *kernels.Call) {
	if c.Results[0].Rows() == 0 {
		return
	}
	g := G.NewGraph()
	nodes := make(G.Nodes, len(c.Args))
	for i := range c.Args {
		nodes[i] = G.NodeFromAny(g, operand(&c.Args[i], vectors[op] > 0 && i == vectors[op]), G.WithName(fmt.Sprint("x", i)))
	}
	results := expressions[op](c, nodes)
	values := make([]G.Value, len(results))
	for i, y := range results {
		G.Read(y, &values[i])
	}
	vm := G.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		panic(err)
	}
	for k := range results {
		var list []float64
		switch v := values[k].Data().(type) {
		case float64:
			list = []float64{v}
		case []float64:
			list = v
		}
		t := &c.Results[k]
		for i := range list {
			reference.Set(t, i/t.Cols, i%t.Cols, list[i])
		}
	}
}

// operand copies a tensor as a matrix; a vector is a row.
func operand(t *kernels.Tensor, vector bool) *tensor.Dense {
	rows, cols := t.Rows(), t.Cols
	v := make([]float64, 0, rows*cols)
	for i := range rows {
		for j := range cols {
			v = append(v, reference.At(t, i, j))
		}
	}
	if vector {
		rows, cols = 1, rows
	}
	return tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(v))
}
