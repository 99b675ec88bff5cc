package gorgonia_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/interop/gorgonia"
	"github.com/krait-ml/krait/lab/proof"
	"github.com/krait-ml/krait/lab/validate"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// expressions builds nodes of one expression graph, with random values.
type expressions struct {
	*G.ExprGraph
	rng *rand.Rand
}

func newExpressions() *expressions {
	return &expressions{G.NewGraph(), rand.New(rand.NewPCG(1, 2))}
}

func (e *expressions) leaf(name string, shape ...int) *G.Node {
	values := make([]float64, tensor.Shape(shape).TotalSize())
	for i := range values {
		values[i] = e.rng.NormFloat64() / math.Sqrt(float64(shape[0]))
	}
	return G.NodeFromAny(e.ExprGraph, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values)), G.WithName(name))
}

// counterparts has an expression of x[5 12], y[5 12], and weights, for everything that Graph knows.
var counterparts = map[string]func(e *expressions, x, y *G.Node) *G.Node{
	"product": func(e *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Mul(x, e.leaf("w", 12, 7))) },
	"transposed product": func(e *expressions, x, _ *G.Node) *G.Node {
		return G.Must(G.Mul(x, G.Must(G.Transpose(e.leaf("w", 7, 12), 1, 0))))
	},
	"one weight twice": func(e *expressions, x, y *G.Node) *G.Node {
		w := e.leaf("w", 12, 12)
		return G.Must(G.Add(G.Must(G.Mul(x, w)), G.Must(G.Mul(y, G.Must(G.Transpose(w, 1, 0))))))
	},
	"add":      func(_ *expressions, x, y *G.Node) *G.Node { return G.Must(G.Add(x, y)) },
	"subtract": func(_ *expressions, x, y *G.Node) *G.Node { return G.Must(G.Sub(x, y)) },
	"multiply": func(_ *expressions, x, y *G.Node) *G.Node { return mul(x, y) },
	"numbers": func(_ *expressions, x, _ *G.Node) *G.Node {
		return G.Must(G.Sub(G.NewConstant(2.0), plus(times(x, 3), -0.5)))
	},
	"minus and over": func(_ *expressions, x, _ *G.Node) *G.Node {
		return G.Must(G.HadamardDiv(G.Must(G.Sub(x, G.NewConstant(2.0))), G.NewConstant(4.0)))
	},
	"neg": func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Neg(x)) },
	"square and cube": func(_ *expressions, x, y *G.Node) *G.Node {
		return G.Must(G.Add(G.Must(G.Square(x)), G.Must(G.Cube(y))))
	},
	"sigmoid and tanh": func(_ *expressions, x, y *G.Node) *G.Node { return mul(G.Must(G.Sigmoid(x)), G.Must(G.Tanh(y))) },
	"softplus":         func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Softplus(x)) },
	"relu":             func(_ *expressions, x, _ *G.Node) *G.Node { return relu(x) },
	"bias": func(e *expressions, x, _ *G.Node) *G.Node {
		return G.Must(G.BroadcastAdd(x, e.leaf("b", 12), nil, []byte{0}))
	},
	"scale from the left": func(e *expressions, x, _ *G.Node) *G.Node {
		return G.Must(G.BroadcastHadamardProd(e.leaf("d", 1, 12), x, []byte{0}, nil))
	},
	"softmax": func(e *expressions, x, _ *G.Node) *G.Node {
		return G.Must(G.SoftMax(G.Must(G.Mul(x, e.leaf("w", 12, 7))), 1))
	},
	"sum": func(_ *expressions, x, y *G.Node) *G.Node { return G.Must(G.Sum(mul(x, y), 1)) },
	"rms norm": func(e *expressions, x, _ *G.Node) *G.Node {
		inner := G.Must(G.Mul(x, e.leaf("w", 12, 8)))
		return G.Must(G.BroadcastHadamardProd(normalised(inner), e.leaf("d", 8), nil, []byte{0}))
	},
	"slices": func(e *expressions, x, _ *G.Node) *G.Node {
		xz := G.Must(G.Mul(x, e.leaf("w", 12, 16)))
		return G.Must(G.Mul(mul(G.Must(G.Slice(xz, nil, G.S(0, 8))), silu(G.Must(G.Slice(xz, nil, G.S(8, 16))))), e.leaf("out", 8, 12)))
	},
	"slices that overlap": func(e *expressions, x, y *G.Node) *G.Node {
		sum := G.Must(G.Add(G.Must(G.Mul(x, e.leaf("w", 12, 16))), G.Must(G.Mul(y, e.leaf("v", 12, 16)))))
		a, b := G.Must(G.Slice(sum, nil, G.S(0, 12))), G.Must(G.Slice(sum, nil, G.S(4, 16)))
		return G.Must(G.Mul(G.Must(G.Slice(mul(a, b), nil, G.S(2, 8))), e.leaf("out", 6, 3)))
	},
	"concat": func(e *expressions, x, y *G.Node) *G.Node {
		both := G.Must(G.Concat(1, G.Must(G.Mul(x, e.leaf("w", 12, 8))), G.Must(G.Tanh(G.Must(G.Mul(y, e.leaf("v", 12, 4)))))))
		return G.Must(G.Mul(both, e.leaf("out", 12, 5)))
	},
}

// TestGraph: every counterpart gives what Gorgonia's machine gives, on one rank and on four, and
// four are proved.
func TestGraph(t *testing.T) {
	for name, build := range counterparts {
		t.Run(name, func(t *testing.T) {
			e := newExpressions()
			x, y := e.leaf("x", 5, 12), e.leaf("y", 5, 12)
			out := build(e, x, y)
			var inputs []string
			for _, leaf := range []*G.Node{x, y} {
				if e.To(leaf.ID()).Len() > 0 {
					inputs = append(inputs, leaf.Name())
				}
			}
			g, weights, err := gorgonia.Graph(e.ExprGraph, gorgonia.GraphOptions{Inputs: inputs, Outputs: G.Nodes{out}})
			if err != nil {
				t.Fatal(err)
			}
			vm := G.NewTapeMachine(e.ExprGraph)
			defer vm.Close()
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			want := out.Value().Data().([]float64)
			for _, ranks := range []int{1, 4} {
				got := stepped(t, g, weights, ranks, map[string]*G.Node{"x": x, "y": y}, inputs)
				if len(got) != len(want) {
					t.Fatalf("%d numbers, want %d\n%s", len(got), len(want), graph.Print(g))
				}
				for i := range got {
					if d := math.Abs(float64(got[i]) - want[i]); !(d <= 3e-5*max(1, math.Abs(want[i]))) {
						t.Fatalf("%d ranks: number %d is %g, want %g\n%s", ranks, i, got[i], want[i], graph.Print(g))
					}
				}
			}
			if _, _, err := proof.Of(t.Context(), g, krait.Sharding{Ranks: 4}, validate.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGraphRoots: without Outputs, roots are outputs under their nodes' names, and so is what is
// read.
func TestGraphRoots(t *testing.T) {
	e := newExpressions()
	x := G.NewMatrix(e.ExprGraph, G.Float32, G.WithShape(5, 12), G.WithName("x"))
	inner := G.Must(G.Tanh(x))
	G.WithName("layers.0.inner")(inner)
	var value G.Value
	G.Read(inner, &value)
	G.Must(G.Sigmoid(inner))
	g, _, err := gorgonia.Graph(e.ExprGraph, gorgonia.GraphOptions{Name: "roots"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range g.Outputs {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"layers.0.inner", "v1"}) || g.Name != "roots" || !slices.Equal(g.Blocks(), []string{"layers.0"}) {
		t.Errorf("outputs %q, blocks %q", names, g.Blocks())
	}
	if _, _, err := gorgonia.Graph(G.NewGraph(), gorgonia.GraphOptions{}); err == nil || !strings.Contains(err.Error(), "has no outputs") {
		t.Error(err)
	}
}

// TestGraphUnits: columns of inputs and outputs are whole, unless Units says how ranks own them;
// those between have units, and so have slices of them.
func TestGraphUnits(t *testing.T) {
	e := newExpressions()
	x, y := e.leaf("x", 5, 12), e.leaf("y", 5, 12)
	named := func(name string, n *G.Node) *G.Node { G.WithName(name)(n); return n }
	added := named("added", G.Must(G.Add(G.Must(G.Mul(x, e.leaf("w", 12, 12))), y)))
	inner := named("inner", G.Must(G.Mul(x, e.leaf("v", 12, 8))))
	out := named("out", G.Must(G.Mul(named("half", G.Must(G.Slice(inner, nil, G.S(0, 4)))), e.leaf("o", 4, 3))))
	for want, o := range map[string]gorgonia.GraphOptions{
		"x 12, y 12, added 12, inner c0:4/1|c4:4/1, half 4/1, out 3":     {},
		"x 12, y 12/4, added 12/4, inner c0:4/1|c4:4/1, half 4/1, out 3": {Units: map[string]int{"y": 4}},
	} {
		o.Inputs, o.Outputs = []string{"x", "y"}, G.Nodes{added, out}
		g, _, err := gorgonia.Graph(e.ExprGraph, o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"x", "y", "added", "inner", "half", "out"} {
			v, ok := g.Value(name)
			if !ok {
				t.Fatalf("no value %s in\n%s", name, graph.Print(g))
			}
			got = append(got, name+" "+v.Type.Dims[1].String())
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s, want %s", strings.Join(got, ", "), want)
		}
	}
}

// stepped runs a graph on the values of nodes, and returns its output.
func stepped(t *testing.T, g *graph.Graph, weights krait.Weights, ranks int, nodes map[string]*G.Node, inputs []string) []float32 {
	t.Helper()
	engine, err := krait.NewEngine(g, weights, krait.Options{Sharding: krait.Sharding{Ranks: ranks}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	slot, err := engine.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	given, rows := map[string]graph.Array{}, 0
	for _, name := range inputs {
		a, err := gorgonia.FromDense(nodes[name].Value().(*tensor.Dense))
		if err == nil {
			given[name], err = a.Convert(graph.F32)
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = a.Shape[0]
	}
	results, err := engine.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: rows}}, Inputs: given})
	if err != nil {
		t.Fatal(err)
	}
	y, err := results.Output(g.Outputs[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	for i := range y.Rows() {
		all = append(all, y.Row(i)...)
	}
	return all
}

// TestGraphRefuses: what has no counterpart is refused by the node's name and operation.
func TestGraphRefuses(t *testing.T) {
	for want, build := range map[string]func(e *expressions, x, y *G.Node) *G.Node{
		"operation exp (gorgonia.elemUnaryOp): Krait has no counterpart": func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Exp(x)) },
		"operation ÷ false (gorgonia.elemBinOp)":                         func(_ *expressions, x, y *G.Node) *G.Node { return G.Must(G.HadamardDiv(x, y)) },
		"operation ^ false":   func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Pow(x, G.NewConstant(2.0))) },
		"Softmax{1, true}()":  func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.LogSoftMax(x, 1)) },
		"Softmax{0, false}()": func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.SoftMax(x, 0)) },
		"operation Σ[0]":      func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Sum(x, 0)) },
		"its second operand: gorgonia node y of shape (5, 12) must be a weight": func(_ *expressions, x, y *G.Node) *G.Node { return G.Must(G.Mul(x, G.Must(G.Transpose(y, 1, 0)))) },
		"operation Aᵀ{1, 0}":                  func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Transpose(x, 1, 0)) },
		"only slices of neighbouring columns": func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Slice(x, G.S(0, 3))) },
		"a slice of one column":               func(_ *expressions, x, _ *G.Node) *G.Node { return G.Must(G.Slice(x, nil, G.S(3))) },
		"a slice of 300 columns": func(e *expressions, x, _ *G.Node) *G.Node {
			return G.Must(G.Slice(G.Must(G.Mul(x, e.leaf("w", 12, 300))), nil, G.S(0, 20)))
		},
		"operation ÷ false (gorgonia.elemBinOp): Krait has no": func(_ *expressions, x, y *G.Node) *G.Node { // the rms of another value
			rms := G.Must(G.Sqrt(plus(G.Must(G.Mean(G.Must(G.Square(x)), 1)), eps)))
			return G.Must(G.BroadcastHadamardDiv(y, rms, nil, []byte{1}))
		},
		"(5, 12), operation ÷ false (gorgonia.elemBinOp): Krait": func(_ *expressions, x, _ *G.Node) *G.Node { // not a mean
			part := G.Must(G.HadamardDiv(G.Must(G.Sum(G.Must(G.Square(x)), 1)), G.NewConstant(5.0)))
			return G.Must(G.BroadcastHadamardDiv(x, G.Must(G.Sqrt(plus(part, eps))), nil, []byte{1}))
		},
		"operation >= true": func(_ *expressions, x, y *G.Node) *G.Node { return mul(x, G.Must(G.Gte(y, G.NewConstant(0.0), true))) },
		"operation >= true (gorgonia.elemBinOp)": func(_ *expressions, x, _ *G.Node) *G.Node {
			return mul(x, G.Must(G.Gte(x, G.NewConstant(1.0), true)))
		},
		"Concat(axis=0)": func(_ *expressions, x, y *G.Node) *G.Node { return G.Must(G.Concat(0, x, y)) },
		"weight w is used where a value with a row per token must be": func(e *expressions, x, _ *G.Node) *G.Node { return mul(x, e.leaf("w", 5, 12)) },
	} {
		e := newExpressions()
		x, y := e.leaf("x", 5, 12), e.leaf("y", 5, 12)
		var out *G.Node
		func() {
			defer func() { recover() }() // what Gorgonia itself refuses
			out = build(e, x, y)
		}()
		if out == nil {
			t.Errorf("%s: Gorgonia refuses it, too", want)
			continue
		}
		_, _, err := gorgonia.Graph(e.ExprGraph, gorgonia.GraphOptions{Inputs: []string{"x", "y"}, Outputs: G.Nodes{out}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	e := newExpressions()
	out := G.Must(G.Tanh(e.leaf("x", 5, 12)))
	short := G.Must(G.Tanh(G.NewMatrix(e.ExprGraph, G.Float64, G.WithShape(3, 12), G.WithName("v"))))
	for want, o := range map[string]gorgonia.GraphOptions{
		"the options name the input z":                           {Inputs: []string{"x", "z"}},
		"input x: units of 5; they must divide its 12 columns":   {Inputs: []string{"x"}, Units: map[string]int{"x": 5}},
		"weight x is used where a value with a row per token mu": {},
		"input v has 3 rows, another has 5":                      {Inputs: []string{"x"}, Outputs: G.Nodes{out, short}},
	} {
		if o.Outputs == nil {
			o.Outputs = G.Nodes{out}
		}
		if _, _, err := gorgonia.Graph(e.ExprGraph, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
