package validate

import (
	"fmt"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// floats is x in float64: x itself unless it is a parameter.
func floats(x kernels.Tensor) (kernels.Tensor, error) {
	if x.DType == graph.F64 {
		return x, nil
	}
	if !x.DType.Float() && !x.DType.Quantized() {
		return x, fmt.Errorf("a tensor of %s where floats are wanted", x.DType)
	}
	wide := x
	wide.DType, wide.F32, wide.U16, wide.U8, wide.Blocks = graph.F64, nil, nil, nil, nil
	wide.F64 = make([]float64, x.Dims[0]*x.Cols)
	wide.Stride = x.Cols
	line, stride := make([]float32, x.Cols), x.Stride
	if x.DType.Quantized() { // rows lie one after another
		stride = x.Cols
	}
	for i := range x.Dims[0] {
		x.Read(line, i*stride)
		for j, v := range line {
			wide.F64[i*x.Cols+j] = float64(v)
		}
	}
	return wide, nil
}

// product is the number of elements that some axes have together.
func product(x *kernels.Tensor, from, to int) int {
	n := 1
	for _, d := range x.Dims[from:to] {
		n *= d
	}
	return n
}

// fieldRun is where neighbouring fields of an axis are in what a rank holds.
func fieldRun(l *lot, t graph.Type, axis int, names string, ranks, rank int) (start, n int, err error) {
	if axis < 0 || axis >= len(t.Dims) {
		return 0, 0, fmt.Errorf("axis %d of %s", axis, t)
	}
	first, count, _, ok := t.Dims[axis].Run(names)
	if !ok {
		return 0, 0, fmt.Errorf("no fields %q in %s", names, t)
	}
	held := t.Extents(l.Batch, ranks, rank)
	if held == nil || t.Layout.Axis != axis {
		held = nil
		for _, f := range t.Dims[axis].Fields {
			held = append(held, graph.Run{Len: f.Size})
		}
	}
	for i, r := range held {
		if i < first {
			start += r.Len
		} else if i < first+count {
			n += r.Len
		}
	}
	return start, n, nil
}

// takeField copies the fields of an axis of x, of type t, to where to is described.
func takeField(l *lot, to, x *kernels.Tensor, t graph.Type, axis int, names string, ranks, rank int) error {
	start, n, err := fieldRun(l, t, axis, names, ranks, rank)
	if err != nil {
		return err
	}
	outer, inner, line := product(x, 0, axis), product(x, axis+1, len(t.Dims)), x.Dims[axis]
	if have := outer * n * inner; have != len(to.F64) {
		return fmt.Errorf("the fields have %d elements, and the result %d", have, len(to.F64))
	}
	for o := range outer {
		copy(to.F64[o*n*inner:(o+1)*n*inner], x.F64[(o*line+start)*inner:])
	}
	return nil
}

// cut copies what a rank holds of a whole tensor to where to is described as of type t.
func cut(l *lot, to, whole *kernels.Tensor, t graph.Type, ranks, rank int) {
	parts := graph.PiecesIn(l.Batch, t, ranks, rank)
	parts.Each(lines(whole, t), whole.Cols, func(row, from, partRow, part, n int) {
		at := row*whole.Cols + from
		copy(to.F64[partRow*to.Cols+part:][:n], whole.F64[at:at+n])
	})
}

// cutIntegers is cut of integers.
func cutIntegers(l *lot, to, whole *kernels.Tensor, t graph.Type, ranks, rank int) {
	parts := graph.PiecesIn(l.Batch, t, ranks, rank)
	parts.Each(lines(whole, t), whole.Cols, func(row, from, partRow, part, n int) {
		copy(to.I32[partRow*to.Cols+part:][:n], whole.I32[row*whole.Cols+from:])
	})
}

// gather copies what a rank holds to where it is in the whole.
func gather(l *lot, whole, from *kernels.Tensor, t graph.Type, ranks, rank int) {
	parts := graph.PiecesIn(l.Batch, t, ranks, rank)
	parts.Each(lines(whole, t), whole.Cols, func(row, to, partRow, part, n int) {
		at := partRow*from.Cols + part
		copy(whole.F64[row*whole.Cols+to:][:n], from.F64[at:at+n])
	})
}

// summands makes terms for the ranks whose sum is the whole.
func summands(whole *kernels.Tensor, parts []kernels.Tensor, random stream) {
	last := parts[len(parts)-1].F64
	copy(last, whole.F64)
	for r := range parts[:len(parts)-1] {
		term := parts[r].F64
		for i := range term {
			term[i] = random.value(r*len(term) + i)
			last[i] -= term[i]
		}
	}
}

// sameShape reports whether two types have axes of the same sizes.
func sameShape(t, u graph.Type) bool {
	return slices.EqualFunc(t.Dims, u.Dims, func(a, b graph.Dim) bool { return a.Sym == b.Sym && a.Len() == b.Len() })
}

// fieldType is the type of one field of an axis, whole.
func fieldType(t graph.Type, axis int, name string) graph.Type {
	out := graph.TypeOf(t.DType, slices.Clone(t.Dims)...)
	f, _, _, _ := t.Dims[axis].Field(name)
	out.Dims[axis] = graph.Units(f.Size, f.Unit)
	return out
}
