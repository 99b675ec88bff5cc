package gorgonia

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// children returns the operands of a node.
func (r *reader) children(n *gorgonia.Node) (list []*gorgonia.Node) {
	for it := r.g.From(n.ID()); it != nil && it.Next(); {
		list = append(list, it.Node().(*gorgonia.Node))
	}
	return list
}

// kind returns what Gorgonia calls a node's operation, and the name of its Go type, which alone
// tells some apart.
func kind(n *gorgonia.Node) (text, typ string) {
	if n.Op() == nil {
		return "", ""
	}
	_, typ, _ = strings.Cut(fmt.Sprintf("%T", n.Op()), ".")
	return n.Op().String(), typ
}

// apply reads a node that is an operation.
func (r *reader) apply(n *gorgonia.Node) (*value, error) {
	text, typ := kind(n)
	args := r.children(n)
	switch typ {
	case "linAlgBinOp":
		if text == "A × B" || text == "A × Bᵀ" {
			return r.product(n, args[0], args[1], text == "A × Bᵀ")
		}
	case "elemBinOp":
		return r.binary(n, strings.Fields(text)[0], args[0], args[1])
	case "elemUnaryOp":
		return r.unary(n, text, args[0])
	case "softmaxOp":
		if last := len(n.Shape()) - 1; text == fmt.Sprintf("Softmax{%d, false}()", last) || text == "Softmax{-1, false}()" {
			return r.softmax(n, args[0])
		}
	case "sumOp":
		if text == "Σ[1]" && len(args[0].Shape()) == 2 {
			return r.sum(n, args[0])
		}
	case "sliceOp":
		return r.columns(n, args[0], text)
	case "concatOp":
		if text == "Concat(axis=1)" {
			return r.concat(n, args)
		}
	}
	return nil, noCounterpart(n)
}

// noCounterpart refuses a node by its name and operation.
func noCounterpart(n *gorgonia.Node) error {
	return fmt.Errorf("%s: Krait has no counterpart for it there", describe(n))
}

// product reads x times a weight: [k n], or [n k] if it is transposed.
func (r *reader) product(n, left, right *gorgonia.Node, transposed bool) (*value, error) {
	x, err := r.value(left)
	if err != nil {
		return nil, err
	}
	if text, typ := kind(right); typ == "transposeOp" && text == "Aᵀ{1, 0}" {
		right, transposed = r.children(right)[0], !transposed
	}
	name, shape, err := r.weight(right)
	if err != nil {
		return nil, fmt.Errorf("%s: its second operand: %w", describe(n), err)
	}
	storage, out := &graph.Storage{Pieces: []graph.Piece{{Tensor: name}}, Perm: []int{1, 0}}, shape[1]
	if transposed {
		storage, out = graph.Stored(name, shape...), shape[0]
	}
	a := newAxis(out)
	return r.add(n, a, func(is string) *graph.Value {
		return r.b.MatMul(is, x.out, r.param(name, storage, a.dim(), x.axis.dim()))
	}), nil
}

// number returns the number that a node is, if it is constant.
func number(n *gorgonia.Node) (float64, bool) {
	text, _ := kind(n)
	if size, ok := strings.CutPrefix(text, "SizeOf="); ok {
		v, err := strconv.Atoi(size)
		return float64(v), err == nil
	}
	if !strings.HasPrefix(text, "const") || n.Value() == nil {
		return 0, false
	}
	switch v := n.Value().Data().(type) {
	case float64:
		return v, true
	case float32:
		return float64(v), true
	}
	return 0, false
}

// broadcast returns what a node repeats along an axis, or nil.
func (r *reader) broadcast(n *gorgonia.Node, along int) *gorgonia.Node {
	text, typ := kind(n)
	if typ != "repeatOp" || text != fmt.Sprint("Repeat", along) {
		return nil
	}
	of := r.children(n)[0]
	if _, typ := kind(of); typ == "reshapeOp" {
		of = r.children(of)[0]
	}
	return of
}

// binary reads an operation of two operands, element by element.
func (r *reader) binary(n *gorgonia.Node, op string, left, right *gorgonia.Node) (*value, error) {
	if x, eps, ok := r.rmsNorm(op, left, right); ok {
		return r.each(n, x, func(is string, x *graph.Value) *graph.Value { return r.b.RMSNorm(is, x, nil, eps) })
	}
	if op == "⊙" && r.isRectified(left, right) {
		return r.each(n, left, func(is string, x *graph.Value) *graph.Value { return r.b.Map(is, "relu", x) })
	}
	if c, ok := number(right); ok {
		return r.withNumber(n, op, left, c)
	}
	if c, ok := number(left); ok {
		switch op {
		case "+", "⊙":
			return r.withNumber(n, op, right, c)
		case "-":
			return r.each(n, right, func(is string, x *graph.Value) *graph.Value {
				return r.b.Plus(is, r.b.Times(r.unused(is+"_neg"), x, -1), c)
			})
		}
	}
	for _, pair := range [][2]*gorgonia.Node{{left, right}, {right, left}} {
		if w := r.broadcast(pair[1], 0); w != nil && (op == "+" || op == "⊙") {
			return r.withVector(n, op, pair[0], w)
		}
	}
	return r.both(n, op, left, right)
}

// each reads an operation of one operand whose result has the same columns.
func (r *reader) each(n, of *gorgonia.Node, emit func(is string, x *graph.Value) *graph.Value) (*value, error) {
	x, err := r.value(of)
	if err != nil {
		return nil, err
	}
	return r.add(n, x.axis, func(is string) *graph.Value { return emit(is, x.out) }), nil
}

// withNumber reads x op c.
func (r *reader) withNumber(n *gorgonia.Node, op string, x *gorgonia.Node, c float64) (*value, error) {
	switch op {
	case "-":
		op, c = "+", -c
	case "÷":
		op, c = "⊙", 1/c
	}
	switch op {
	case "+":
		return r.each(n, x, func(is string, x *graph.Value) *graph.Value { return r.b.Plus(is, x, c) })
	case "⊙":
		return r.each(n, x, func(is string, x *graph.Value) *graph.Value { return r.b.Times(is, x, c) })
	}
	return nil, noCounterpart(n)
}

// withVector reads x + w or x ⊙ w, with a weight [n] or [1 n] for each token.
func (r *reader) withVector(n *gorgonia.Node, op string, left, w *gorgonia.Node) (*value, error) {
	x, err := r.value(left)
	if err != nil {
		return nil, err
	}
	name, shape, err := r.weight(w)
	if err != nil {
		return nil, fmt.Errorf("%s: what it broadcasts: %w", describe(n), err)
	}
	if shape.TotalSize() != x.axis.n {
		return nil, fmt.Errorf("%s: weight %s has shape %v; it must have one element for each of %d columns", describe(n), name, shape, x.axis.n)
	}
	return r.add(n, x.axis, func(is string) *graph.Value {
		v := r.param(name, graph.Stored(name, shape...), x.axis.dim())
		if op == "+" {
			return r.b.Bias(is, x.out, v)
		}
		return r.b.Scale(is, x.out, v)
	}), nil
}

// both reads an operation of two values that have a row per token.
func (r *reader) both(n *gorgonia.Node, op string, left, right *gorgonia.Node) (*value, error) {
	if op != "+" && op != "-" && op != "⊙" {
		return nil, noCounterpart(n)
	}
	x, err := r.value(left)
	if err != nil {
		return nil, err
	}
	y, err := r.value(right)
	if err != nil {
		return nil, err
	}
	x.axis.join(y.axis)
	return r.add(n, x.axis, func(is string) *graph.Value {
		switch op {
		case "+":
			return r.b.Add(is, x.out, y.out)
		case "-":
			return r.b.Add(is, x.out, r.b.Times(r.unused(is+"_neg"), y.out, -1))
		}
		return r.b.Mul(is, x.out, y.out)
	}), nil
}

// unary reads a function of each element.
func (r *reader) unary(n *gorgonia.Node, op string, x *gorgonia.Node) (*value, error) {
	var emit func(is string, x *graph.Value) *graph.Value
	switch op {
	case "sigmoid", "tanh", "softplus":
		emit = func(is string, x *graph.Value) *graph.Value { return r.b.Map(is, op, x) }
	case "neg":
		emit = func(is string, x *graph.Value) *graph.Value { return r.b.Times(is, x, -1) }
	case "square":
		emit = func(is string, x *graph.Value) *graph.Value { return r.b.Mul(is, x, x) }
	case "cube":
		emit = func(is string, x *graph.Value) *graph.Value {
			return r.b.Mul(is, r.b.Mul(r.unused(is+"_square"), x, x), x)
		}
	default:
		return nil, noCounterpart(n)
	}
	return r.each(n, x, emit)
}

// isRectified reports whether a product is x ⊙ (x >= 0), as gorgonia.Rectify makes it.
func (r *reader) isRectified(x, positive *gorgonia.Node) bool {
	text, typ := kind(positive)
	if typ != "elemBinOp" || text != ">= true" {
		return false
	}
	args := r.children(positive)
	zero, ok := number(args[1])
	return ok && zero == 0 && args[0] == x
}

// rmsNorm recognizes x ÷ sqrt(mean(x²) + eps), with the root broadcast along the columns.
func (r *reader) rmsNorm(op string, x, root *gorgonia.Node) (*gorgonia.Node, float64, bool) {
	is := func(n *gorgonia.Node, typ, text string) []*gorgonia.Node {
		if n == nil {
			return nil
		}
		if gotText, got := kind(n); got != typ || gotText != text {
			return nil
		}
		return r.children(n)
	}
	if op != "÷" {
		return nil, 0, false
	}
	sqrt := is(r.broadcast(root, 1), "elemUnaryOp", "sqrt")
	if sqrt == nil {
		return nil, 0, false
	}
	plus := is(sqrt[0], "elemBinOp", "+ false")
	if plus == nil {
		return nil, 0, false
	}
	eps, ok := number(plus[1])
	mean := is(plus[0], "elemBinOp", "÷ false")
	if !ok || mean == nil {
		return nil, 0, false
	}
	size, ok := number(mean[1])
	sum := is(mean[0], "sumOp", "Σ[1]")
	if !ok || sum == nil {
		return nil, 0, false
	}
	square := is(sum[0], "elemUnaryOp", "square")
	return x, eps, square != nil && square[0] == x && len(x.Shape()) == 2 && size == float64(x.Shape()[1])
}

// softmax is a router of which all experts stay.
func (r *reader) softmax(n, of *gorgonia.Node) (*value, error) {
	x, err := r.value(of)
	if err != nil {
		return nil, err
	}
	x.axis.find().group.find().whole = true
	return r.add(n, x.axis, func(is string) *graph.Value { return r.b.Router(is, x.out, x.axis.n, false) }), nil
}

// sum is a product with ones: a column of sums.
func (r *reader) sum(n, of *gorgonia.Node) (*value, error) {
	x, err := r.value(of)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprint("ones", x.axis.n)
	ones := make([]float32, x.axis.n)
	for i := range ones {
		ones[i] = 1
	}
	r.weights[name] = graph.ArrayOf(ones, 1, x.axis.n)
	a := newAxis(1)
	a.group.whole = true
	return r.add(n, a, func(is string) *graph.Value {
		return r.b.MatMul(is, x.out, r.param(name, graph.Stored(name, 1, x.axis.n), a.dim(), x.axis.dim()))
	}), nil
}

// byteBounds is the size of the largest axis of which Gorgonia keeps slices apart: it compares the
// low bytes of their bounds.
const byteBounds = 256

// columns reads a slice of columns.
func (r *reader) columns(n, of *gorgonia.Node, text string) (*value, error) {
	x, err := r.value(of)
	if err != nil {
		return nil, err
	}
	s, ok := n.Op().(interface{ IsSlice() tensor.Slice })
	if ok && s.IsSlice() == nil && strings.Trim(text, "T[:, .]") == "" { // all of an axis
		return x, nil
	}
	switch {
	case !ok || s.IsSlice() == nil || !strings.HasPrefix(text, "T[:, ") || strings.Count(text, ":, ") != 1 || s.IsSlice().Step() > 1:
		return nil, fmt.Errorf("%s: only slices of neighbouring columns have a counterpart in Krait", describe(n))
	case x.axis.n > byteBounds:
		return nil, fmt.Errorf("%s: a slice of %d columns; Gorgonia takes slices of one node for the same if the low bytes of their bounds are (of more than %d columns), so the graph may lack one: slice the weight instead", describe(n), x.axis.n, byteBounds)
	}
	from, to := s.IsSlice().Start(), s.IsSlice().End()
	if to-from < 2 {
		return nil, fmt.Errorf("%s: a slice of one column loses its axis in Gorgonia; slice two or more", describe(n))
	}
	a := newAxis(to - from)
	a.group.join(x.axis.find().group)
	r.slices = append(r.slices, slice{of: x.axis, is: a, from: from})
	return r.add(n, a, func(is string) *graph.Value {
		if from == 0 && to == x.axis.n {
			return r.b.Times(is, x.out, 1)
		}
		return r.b.Part(is, fieldsFrom(x.out.Type.Dims[1], from, to-from), x.out, 1)
	}), nil
}

// concat reads values side by side, which become fields of one axis.
func (r *reader) concat(n *gorgonia.Node, args []*gorgonia.Node) (*value, error) {
	a := newAxis(0)
	var parts []*value
	for _, arg := range args {
		x, err := r.value(arg)
		if err != nil {
			return nil, err
		}
		parts = append(parts, x)
		a.n += x.axis.n
	}
	from := 0
	for _, x := range parts {
		a.group.join(x.axis.find().group)
		r.slices = append(r.slices, slice{of: a, is: x.axis, from: from})
		from += x.axis.n
	}
	return r.add(n, a, func(is string) *graph.Value {
		var names []string
		var values []*graph.Value
		at := 0
		for _, x := range parts {
			names, values = append(names, fmt.Sprint("c", at)), append(values, x.out)
			at += x.axis.n
		}
		return r.b.Concat(is, strings.Join(names, "|"), values...)
	}), nil
}
