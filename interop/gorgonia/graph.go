package gorgonia

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// GraphOptions say how [Graph] reads an expression graph.
type GraphOptions struct {
	// Name is the graph's name; empty: gorgonia.
	Name string
	// Inputs names leaves that the caller gives with every batch although they have a value, as after
	// gorgonia.Let. Leaves without a value always are inputs; all others are weights.
	Inputs []string
	// Outputs lists the nodes whose values are wanted; nil: the graph's roots, and what
	// gorgonia.Read reads.
	Outputs gorgonia.Nodes
	// Units lets ranks own columns of an input, by its name: how many go together, 1 for channels,
	// the width of a head for heads. Columns of other inputs, and of outputs, are whole on each rank;
	// those of all values between them are units of 1.
	Units map[string]int
}

// Graph turns an expression graph into Krait's, and the values of its leaves into weights, so that
// it is partitioned, proved, drawn and run on ranks and devices. The first axis of inputs is the
// batch: whatever its size in Gorgonia, it is the tokens t of a batch in Krait.
//
// It knows: products of an input or what came of it with a weight [k n], or a transposed weight
// [n k]; +, - and ⊙ of two of these, with a number, and + and ⊙ with a weight [n] that is broadcast
// along the batch; ÷ by a number; sigmoid, tanh, softplus, neg, square, cube and Rectify; SoftMax
// along the last axis; Sum along the last axis, as [t 1]; slices and Concat of columns; and the RMS
// norm x ÷ sqrt(mean(x²) + eps), by its pattern. Everything else is an error that names the node
// and its operation.
//
// Two faults of Gorgonia v0.9.18 merge nodes before Graph sees them: slices of an axis of more than
// 256 elements, which it refuses, and SoftMax and LogSoftMax of one node, of which the second
// becomes the first.
func Graph(g *gorgonia.ExprGraph, o GraphOptions) (*graph.Graph, func(name string) (graph.Array, error), error) {
	if o.Name == "" {
		o.Name = "gorgonia"
	}
	r := &reader{g: g, o: o, values: map[*gorgonia.Node]*value{}, weights: map[string]graph.Array{}, names: map[string]bool{}, b: graph.New(o.Name)}
	outputs := o.Outputs
	if outputs == nil {
		outputs = g.Roots()
	}
	if len(outputs) == 0 {
		return nil, nil, errors.New("the expression graph has no outputs")
	}
	var list []*value
	for _, n := range outputs {
		if _, typ := kind(n); typ == "readOp" { // of gorgonia.Read
			n = r.children(n)[0]
		}
		v, err := r.value(n)
		if err != nil {
			return nil, nil, err
		}
		v.axis.find().group.find().whole = true
		list = append(list, v)
	}
	if err := r.allInputs(); err != nil {
		return nil, nil, err
	}
	r.settle()
	for _, v := range r.order {
		v.out = v.emit()
		if err := r.b.Err(); err != nil {
			return nil, nil, fmt.Errorf("gorgonia node %s: %w", v.name, err)
		}
	}
	for _, v := range list {
		r.b.Output(v.name, v.out)
	}
	built, err := r.b.Graph()
	return built, r.find, err
}

// find returns a weight by its name.
func (r *reader) find(name string) (graph.Array, error) {
	a, ok := r.weights[name]
	if !ok {
		return graph.Array{}, fmt.Errorf("the expression graph has no weight %s", name)
	}
	return a, nil
}

// reader reads an expression graph: first what its nodes are, and which axes are one; then, when
// all units and cuts of axes are known, it emits Krait's nodes in the same order.
type reader struct {
	g       *gorgonia.ExprGraph
	o       GraphOptions
	b       *graph.Builder
	values  map[*gorgonia.Node]*value
	order   []*value
	slices  []slice
	weights map[string]graph.Array
	names   map[string]bool
	batch   int // rows of inputs in Gorgonia
}

// value is a value with a row per token.
type value struct {
	name string
	axis *axis // of its columns
	emit func() *graph.Value
	out  *graph.Value
}

// add appends a value of a node.
func (r *reader) add(n *gorgonia.Node, a *axis, emit func(name string) *graph.Value) *value {
	v := &value{name: r.nameOf(n), axis: a}
	v.emit = func() *graph.Value { return emit(v.name) }
	r.order = append(r.order, v)
	return v
}

// plain are names that people give; others are what Gorgonia makes of expressions.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$`)

// nameOf returns the node's own name, or one that is free.
func (r *reader) nameOf(n *gorgonia.Node) string {
	name := n.Name()
	if !plain.MatchString(name) {
		name = "v"
	}
	return r.unused(name)
}

func (r *reader) unused(name string) string {
	free := name
	for i := 1; r.names[free] || free == "v"; i++ {
		free = fmt.Sprintf("%s%d", name, i)
	}
	r.names[free] = true
	return free
}

// value returns the value of a node, reading it if it is new.
func (r *reader) value(n *gorgonia.Node) (*value, error) {
	if v, ok := r.values[n]; ok {
		return v, nil
	}
	var v *value
	var err error
	if n.Op() == nil {
		v, err = r.input(n)
	} else {
		v, err = r.apply(n)
	}
	if err == nil {
		r.values[n] = v
	}
	return v, err
}

// isInput reports whether the caller gives a leaf.
func (r *reader) isInput(n *gorgonia.Node) bool {
	return n.Op() == nil && (n.Value() == nil || slices.Contains(r.o.Inputs, n.Name()))
}

// input reads a leaf that is an input.
func (r *reader) input(n *gorgonia.Node) (*value, error) {
	shape := n.Shape()
	switch {
	case !r.isInput(n):
		return nil, fmt.Errorf("weight %s is used where a value with a row per token must be; name it in Inputs, or use it in a product or broadcast it along axis 0", n.Name())
	case len(shape) != 2:
		return nil, fmt.Errorf("input %s has shape %v; inputs are [batch columns]", n.Name(), shape)
	case n.Dtype() != tensor.Float32 && n.Dtype() != tensor.Float64:
		return nil, fmt.Errorf("input %s is %v; inputs are float32 or float64", n.Name(), n.Dtype())
	case r.batch != 0 && r.batch != shape[0]:
		return nil, fmt.Errorf("input %s has %d rows, another has %d; the first axis of all is the batch", n.Name(), shape[0], r.batch)
	}
	r.batch = shape[0]
	a := newAxis(shape[1])
	unit, owned := r.o.Units[n.Name()]
	if owned && (unit < 1 || shape[1]%unit != 0) {
		return nil, fmt.Errorf("input %s: units of %d; they must divide its %d columns", n.Name(), unit, shape[1])
	}
	a.group.unit, a.group.whole = unit, !owned
	return r.add(n, a, func(name string) *graph.Value {
		return r.b.Input(name, graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), a.dim()))
	}), nil
}

// allInputs checks that the options name inputs that were read.
func (r *reader) allInputs() error {
	read := map[string]bool{}
	for n := range r.values {
		read[n.Name()] = read[n.Name()] || r.isInput(n)
	}
	for _, name := range slices.Concat(r.o.Inputs, slices.Sorted(maps.Keys(r.o.Units))) {
		if !read[name] {
			return fmt.Errorf("the options name the input %s, which the outputs do not depend on", name)
		}
	}
	return nil
}

// weight reads a leaf as a weight, and returns its name and shape.
func (r *reader) weight(n *gorgonia.Node) (name string, shape tensor.Shape, err error) {
	if n.Op() != nil && !strings.HasPrefix(n.Op().String(), "const") || r.isInput(n) || n.Value() == nil {
		return "", nil, fmt.Errorf("%s must be a weight: a leaf with a value", describe(n))
	}
	t, ok := n.Value().(*tensor.Dense)
	if !ok {
		return "", nil, fmt.Errorf("weight %s is a %T; weights are *tensor.Dense", n.Name(), n.Value())
	}
	a, err := FromDense(t)
	if err != nil {
		return "", nil, fmt.Errorf("weight %s: %w", n.Name(), err)
	}
	name = n.Name()
	if !plain.MatchString(name) {
		name = fmt.Sprint("weight", n.ID())
	}
	a.From += " " + name
	r.weights[name] = a
	return name, t.Shape(), nil
}

// param declares a weight under a name of the graph that is free.
func (r *reader) param(tensor string, s *graph.Storage, dims ...graph.Dim) *graph.Value {
	return r.b.Param(r.unused(tensor), graph.TypeOf(graph.F32, dims...), s)
}

// describe names a node and its operation for errors.
func describe(n *gorgonia.Node) string {
	if n.Op() == nil {
		return fmt.Sprintf("gorgonia node %s of shape %v", n.Name(), n.Shape())
	}
	return fmt.Sprintf("gorgonia node %s of shape %v, operation %s (%T)", n.Name(), n.Shape(), n.Op(), n.Op())
}
