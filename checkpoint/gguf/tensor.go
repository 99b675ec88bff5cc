package gguf

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
)

// Tensor is one named array of a file.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int  // the axis whose elements lie beside each other last; not to be modified
	Data  []byte // as in the file; a view, not to be modified
}

// Elems is the number of elements.
func (t Tensor) Elems() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Readable reports whether Float32s knows the format.
func (t Type) Readable() bool { return t.DType() != graph.NoDType }

// readable lists the formats that Krait reads.
func readable() string {
	var names []string
	for _, t := range slices.Sorted(maps.Keys(dtypes)) {
		names = append(names, t.String())
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// Float32s returns the elements as f32, into which blocks go as ggml's own routines have
// them, to the bit. It is an error for formats that are not floats, or not read: the error
// names the format and those that are.
func (t Tensor) Float32s() ([]float32, error) {
	if size, err := t.Type.Size(t.Shape); err != nil || size != len(t.Data) {
		return nil, fmt.Errorf("tensor %s: %s %v does not have %d bytes", files.Quote(t.Name), t.Type, t.Shape, len(t.Data))
	}
	if !t.Type.Readable() {
		return nil, fmt.Errorf("tensor %s has the format %s; Krait reads %s", files.Quote(t.Name), t.Type, readable())
	}
	return graph.Array{DType: t.Type.DType(), Shape: t.Shape, Data: t.Data}.Float32s(), nil
}
