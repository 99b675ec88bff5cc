// Package gorgonia turns expression graphs of gorgonia.org/gorgonia into Krait's ([Graph]),
// computes operations of Krait's by Gorgonia's machine ([Kernels]), and exchanges tensors with
// gorgonia.org/tensor without copying: [FromDense] and [ToDense] give another look at the same
// memory, [Inputs] and [Tensors] feed an engine, and [Output] looks at its results.
//
// gorgonia.org/tensor panics when a program starts with a Go newer than the one its dependency
// go4.org/unsafe/assume-no-moving-gc knows. Krait requires a version that ends this,
// v0.0.0-20231121144256-b99613f794b6, and a module that requires Krait gets at least that one.
//
// Some faults of gorgonia give wrong numbers without an error:
//   - MatMul and MatVecMul of gorgonia.org/tensor v0.9.24 ignore the stride of a
//     view of columns. Materialize such a view first.
//   - Materialize of gorgonia.org/tensor v0.9.24 copies the wrong elements of a
//     slice of a transposed tensor. Transpose the tensor before slicing it.
//   - Copy of gorgonia.org/tensor v0.9.24 copies a column-major tensor into a
//     row-major one as the memory lies. Slice and Materialize it instead.
//   - gorgonia.org/gorgonia v0.9.18 tells slices of one tensor apart by the low
//     bytes of their bounds: in one graph, [0:256] and [256:512] are one node. Nor does it tell
//     SoftMax and LogSoftMax of one node apart.
//   - The machine of gorgonia.org/gorgonia reuses the memory of a node's value for later ones;
//     gorgonia.Read keeps it.
package gorgonia

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"gorgonia.org/tensor"
)

// element is a number format that both sides have.
type element interface {
	float32 | float64 | int32 | int64
}

// FromDense looks at a float32, float64, int32 or int64 tensor as an array. They
// share memory: what is written to one is read from the other.
//
// The elements must lie one after another, last axis fastest, which slices of
// whole rows do. For other views FromDense returns an error, as it does for
// masked tensors, those without elements, and those that lie on a device.
func FromDense(t *tensor.Dense) (graph.Array, error) {
	if err := readable(t); err != nil {
		return graph.Array{}, err
	}
	a := graph.Array{Shape: slices.Clone([]int(t.Shape())), From: "gorgonia tensor"}
	switch t.Dtype() {
	case tensor.Float32:
		a.DType, a.Data = graph.F32, bytesOf(t.Float32s())
	case tensor.Float64:
		a.DType, a.Data = graph.F64, bytesOf(t.Float64s())
	case tensor.Int32:
		a.DType, a.Data = graph.I32, bytesOf(t.Int32s())
	case tensor.Int64:
		a.DType, a.Data = graph.I64, bytesOf(t.Int64s())
	default:
		return graph.Array{}, fmt.Errorf("a tensor of %v: only float32, float64, int32 and int64 are shared", t.Dtype())
	}
	if len(a.Data) != a.Elems()*a.DType.Bytes() {
		return graph.Array{}, fmt.Errorf("a tensor of shape %v over %d bytes; Materialize() it first", a.Shape, len(a.Data))
	}
	return a, nil
}

// readable reports why the tensor's memory cannot be read from end to end.
func readable(t *tensor.Dense) error {
	switch {
	case t == nil:
		return errors.New("a nil tensor")
	case !t.IsNativelyAccessible():
		return errors.New("the tensor lies on a device; copy it to the host first")
	case t.MemSize() == 0:
		return fmt.Errorf("a tensor of shape %v has no elements", t.Shape())
	case t.IsMasked():
		return errors.New("a masked tensor; fill the masked elements and remove the mask first")
	case rowMajor(t.Shape(), t.Strides()):
		return nil
	case t.IsMaterializable() && (t.RequiresIterator() || t.DataOrder().IsColMajor()):
		return fmt.Errorf("a view of shape %v and strides %v, whose elements do not lie one after another; Materialize() it first", t.Shape(), t.Strides())
	case t.DataOrder().IsColMajor(): // of which Materialize would copy nothing
		return fmt.Errorf("a column-major tensor of shape %v; Slice() and Materialize() it first", t.Shape())
	}
	// Materialize takes it to be contiguous, and copies the wrong elements.
	return fmt.Errorf("a slice of a transposed tensor, of shape %v and strides %v; Transpose() the tensor before slicing it", t.Shape(), t.Strides())
}

// rowMajor reports whether the elements lie one after another, last axis fastest.
func rowMajor(shape tensor.Shape, strides []int) bool {
	if len(strides) < len(shape) { // column-major vectors have one stride or none
		return shape.IsVectorLike() && (len(strides) == 0 || strides[0] == 1)
	}
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != step {
			return false
		}
		step *= shape[i]
	}
	return true
}

// ToDense looks at an f32, f64, i32 or i64 array as a tensor. They share memory. f16, bf16 and
// blocks
// are an error, as gorgonia has no such formats, and so are arrays without elements.
func ToDense(a graph.Array) (t *tensor.Dense, err error) {
	switch d := a.DType; {
	case d == graph.F32:
		t, err = dense[float32](a)
	case d == graph.F64:
		t, err = dense[float64](a)
	case d == graph.I32:
		t, err = dense[int32](a)
	case d == graph.I64:
		t, err = dense[int64](a)
	case d.Float() || d.Quantized():
		err = fmt.Errorf("gorgonia has no %s; Convert(graph.F32) it first", a.DType)
	default:
		err = fmt.Errorf("an array of type %s", a.DType)
	}
	if err != nil && a.From != "" {
		err = fmt.Errorf("%s: %w", a.From, err)
	}
	return t, err
}

// dense makes the tensor of an array whose elements are of type T.
func dense[T element](a graph.Array) (*tensor.Dense, error) {
	size := int(unsafe.Sizeof(T(0)))
	start := unsafe.SliceData(a.Data)
	switch {
	case slices.ContainsFunc(a.Shape, func(n int) bool { return n < 1 }):
		return nil, fmt.Errorf("shape %v has no elements, which gorgonia cannot read", a.Shape)
	case len(a.Data) != a.Elems()*size:
		return nil, fmt.Errorf("shape %v of %s needs %d bytes, the array has %d", a.Shape, a.DType, a.Elems()*size, len(a.Data))
	case uintptr(unsafe.Pointer(start))%unsafe.Alignof(T(0)) != 0:
		return nil, fmt.Errorf("the data is not at a multiple of %d bytes, where %s must be; copy it first", size, a.DType)
	}
	return wrap(unsafe.Slice((*T)(unsafe.Pointer(start)), a.Elems()), a.Shape), nil
}

// wrap makes a tensor over elements, as many as the shape says.
func wrap[T element](elements []T, shape []int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(elements))
}

func bytesOf[T element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(T(0))))
}

// Output looks at what exec.Engine.Output gives, such as logits, as a tensor with a row per token,
// sequence or wanted row. It has two axes, or more where the value has. The memory is the engine's:
// read it before the engine's next step, and do not write to it.
//
// A field of a packed axis is an error, as its rows do not lie one after another
// and gorgonia's products ignore that; so is a result without rows.
func Output(t kernels.Tensor) (*tensor.Dense, error) {
	shape := t.Dims[:]
	for len(shape) > 2 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	n := t.Rows() * t.Cols
	switch {
	case n == 0:
		return nil, fmt.Errorf("a result of shape %v has no elements, which gorgonia cannot read", shape)
	case t.Rows() > 1 && t.Stride != t.Cols:
		return nil, fmt.Errorf("rows of %d elements lie %d apart: a field of a packed axis; output the whole axis, or copy the rows", t.Cols, t.Stride)
	case t.DType == graph.F32:
		return wrap(t.F32[:n:n], shape), nil
	case t.DType == graph.I32:
		return wrap(t.I32[:n:n], shape), nil
	}
	return nil, fmt.Errorf("gorgonia has no %s", t.DType)
}

// Inputs makes the inputs of an exec.Batch from tensors, as [FromDense] does. The
// engine reads them at each step that is given them.
func Inputs(tensors map[string]*tensor.Dense) (map[string]graph.Array, error) {
	find := Tensors(tensors)
	inputs := map[string]graph.Array{}
	for name := range tensors {
		a, err := find(name)
		if err != nil {
			return nil, err
		}
		inputs[name] = a
	}
	return inputs, nil
}

// Tensors finds parameters among tensors, as exec.New and krait.NewEngine want
// it. Where the graph wants the tensor's format, nothing is copied: the engine
// reads the tensor's memory for as long as it is used.
func Tensors(tensors map[string]*tensor.Dense) func(name string) (graph.Array, error) {
	return func(name string) (graph.Array, error) {
		t, ok := tensors[name]
		if !ok {
			return graph.Array{}, fmt.Errorf("there is no gorgonia tensor %s", name)
		}
		a, err := FromDense(t)
		if err != nil {
			return graph.Array{}, fmt.Errorf("gorgonia tensor %s: %w", name, err)
		}
		a.From += " " + name
		return a, nil
	}
}
