package gorgonia

import (
	"fmt"
	"math"
	"strings"

	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	G "gorgonia.org/gorgonia"
)

// Kernels returns the operations that Gorgonia's machine computes, each call as an expression graph
// of its own, in float64: products, rows of tables, sums, activations, norms and convolutions.
// Gorgonia has no scans, attention or mixtures of experts.
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
	"matmul":      one(func(x G.Nodes) *G.Node { return G.Must(G.Mul(x[0], G.Must(G.Transpose(x[1])))) }),
	"embedding":   one(func(x G.Nodes) *G.Node { return G.Must(G.Mul(x[0], x[1])) }),
	"select_rows": one(func(x G.Nodes) *G.Node { return G.Must(G.Mul(x[0], x[1])) }),
	"bias":        one(func(x G.Nodes) *G.Node { return biased(x[0], x[1]) }),
	"scale":       one(func(x G.Nodes) *G.Node { return scaled(x[0], x[1]) }),
	"add":         one(func(x G.Nodes) *G.Node { return G.Must(G.Add(x[0], x[1])) }),
	"mul":         one(func(x G.Nodes) *G.Node { return G.Must(G.HadamardProd(x[0], x[1])) }),
	"times":       numbered(G.HadamardProd),
	"plus":        numbered(G.Add),
	"concat":      one(func(x G.Nodes) *G.Node { return G.Must(G.Concat(1, x...)) }),
	"silu":        one(func(x G.Nodes) *G.Node { return swish(x[0]) }),
	"gelu_tanh":   one(func(x G.Nodes) *G.Node { return geluTanh(x[0]) }),
	"relu":        one(func(x G.Nodes) *G.Node { return G.Must(G.Rectify(x[0])) }),
	"relu2":       one(func(x G.Nodes) *G.Node { return G.Must(G.Square(G.Must(G.Rectify(x[0])))) }),
	"sigmoid":     one(func(x G.Nodes) *G.Node { return G.Must(G.Sigmoid(x[0])) }),
	"tanh":        one(func(x G.Nodes) *G.Node { return G.Must(G.Tanh(x[0])) }),
	"softplus":    one(func(x G.Nodes) *G.Node { return G.Must(G.Softplus(x[0])) }),
	"neg_exp":     one(func(x G.Nodes) *G.Node { return G.Must(G.Neg(G.Must(G.Exp(x[0])))) }),
	"clamp":       one(func(x G.Nodes) *G.Node { return G.Must(G.MinBetween(G.Must(G.MaxBetween(x[0], x[1])), x[2])) }),

	"rmsnorm":      func(c *kernels.Call, x G.Nodes) G.Nodes { return G.Nodes{scaled(normed(c, x[0]), x[1])} },
	"unit_rmsnorm": func(c *kernels.Call, x G.Nodes) G.Nodes { return G.Nodes{normed(c, x[0])} },
	"head_rmsnorm": func(c *kernels.Call, x G.Nodes) G.Nodes { return G.Nodes{scaled(normed(c, x[0]), x[1])} },
	"group_rmsnorm": func(c *kernels.Call, x G.Nodes) G.Nodes {
		return G.Nodes{G.Must(G.HadamardProd(normed(c, x[0]), x[1]))}
	},
	"head_l2norm": func(c *kernels.Call, x G.Nodes) G.Nodes {
		return G.Nodes{byRoot(c, x[0], G.Must(G.Sum(G.Must(G.Square(x[0])), 1)))}
	},

	"conv1d": one(taps),

	// Operations that the compiler fuses neighbours to.
	"silu_mul":      one(func(x G.Nodes) *G.Node { return G.Must(G.HadamardProd(swish(x[0]), x[1])) }),
	"bias_softplus": one(func(x G.Nodes) *G.Node { return G.Must(G.Softplus(biased(x[0], x[1]))) }),
	"add_scaled":    one(func(x G.Nodes) *G.Node { return G.Must(G.Add(x[0], scaled(x[1], x[2]))) }),
	"add_rmsnorm": func(c *kernels.Call, x G.Nodes) G.Nodes {
		sum := G.Must(G.Add(x[0], x[1]))
		return G.Nodes{sum, scaled(normed(c, sum), x[2])}
	},
	"unbiased_conv1d_silu": one(func(x G.Nodes) *G.Node { return swish(taps(x)) }),
	"conv1d_silu":          one(func(x G.Nodes) *G.Node { return swish(biased(taps(x[1:]), x[0])) }),
}

// numbered is an expression of a tensor and the attribute by.
func numbered(f func(x, y *G.Node) (*G.Node, error)) expression {
	return func(c *kernels.Call, x G.Nodes) G.Nodes {
		return G.Nodes{G.Must(f(x[0], G.NewConstant(c.Attrs.Float("by"))))}
	}
}

// one is an expression with one result and no attributes.
func one(f func(x G.Nodes) *G.Node) expression {
	return func(_ *kernels.Call, x G.Nodes) G.Nodes { return G.Nodes{f(x)} }
}

func biased(x, b *G.Node) *G.Node { return G.Must(G.BroadcastAdd(x, b, nil, []byte{0})) }

// scaled multiplies each row of x by a row.
func scaled(x, w *G.Node) *G.Node { return G.Must(G.BroadcastHadamardProd(x, w, nil, []byte{0})) }

func swish(x *G.Node) *G.Node { return G.Must(G.HadamardProd(x, G.Must(G.Sigmoid(x)))) }

func geluTanh(x *G.Node) *G.Node {
	times := func(x *G.Node, v float64) *G.Node { return G.Must(G.HadamardProd(x, G.NewConstant(v))) }
	inner := times(G.Must(G.Add(x, times(G.Must(G.Cube(x)), 0.044715))), math.Sqrt(2/math.Pi))
	return times(G.Must(G.HadamardProd(x, G.Must(G.Add(G.Must(G.Tanh(inner)), G.NewConstant(1.0))))), 0.5)
}

// normed is each row of x by its root mean square.
func normed(c *kernels.Call, x *G.Node) *G.Node {
	return byRoot(c, x, G.Must(G.Mean(G.Must(G.Square(x)), 1)))
}

// byRoot divides each row of x by the root of a number of the row, to which eps is added.
func byRoot(c *kernels.Call, x, of *G.Node) *G.Node {
	root := G.Must(G.Sqrt(G.Must(G.Add(of, G.NewConstant(c.Attrs.Float("eps"))))))
	return G.Must(G.BroadcastHadamardDiv(x, root, nil, []byte{1}))
}

// taps sums products of the inputs that each tap of a convolution sees, and its weights.
func taps(x G.Nodes) *G.Node {
	sum := scaled(x[0], x[1])
	for k := 2; k < len(x); k += 2 {
		sum = G.Must(G.Add(sum, scaled(x[k], x[k+1])))
	}
	return sum
}

// run evaluates the expression of a call of an operation.
func run(op string, c *kernels.Call) {
	if c.Results[0].Rows() == 0 {
		return
	}
	g := G.NewGraph()
	operands := operandsOf(op, c)
	nodes := make(G.Nodes, len(operands))
	for i, x := range operands {
		nodes[i] = G.NodeFromAny(g, x, G.WithName(fmt.Sprint("x", i)))
	}
	if strings.Contains(op, "conv1d") { // the plain kernel copies inputs to the state
		k := reference.Kernels[op]
		k.Run(c, 0, k.Units(c))
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
