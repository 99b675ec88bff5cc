package gorgonia_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/interop/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// TestShare writes through each side and reads through the other.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		backing    any
		dtype      graph.DType
		seven, one any
	}{
		{[]float32{1, 2, 3, 4, 5, 6}, graph.F32, float32(7), float32(1)},
		{[]float64{1, 2, 3, 4, 5, 6}, graph.F64, 7.0, 1.0},
		{[]int32{1, 2, 3, 4, 5, 6}, graph.I32, int32(7), int32(1)},
		{[]int64{1, 2, 3, 4, 5, 6}, graph.I64, int64(7), int64(1)},
	} {
		first := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(c.backing))
		a, err := gorgonia.FromDense(first)
		if err != nil {
			t.Fatal(err)
		}
		if a.DType != c.dtype || !slices.Equal(a.Shape, []int{2, 3}) {
			t.Fatalf("%s %v, want %s [2 3]", a.DType, a.Shape, c.dtype)
		}
		second, err := gorgonia.ToDense(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.SetAt(c.seven, 1, 2); err != nil {
			t.Fatal(err)
		}
		if v, err := second.At(1, 2); v != c.seven {
			t.Errorf("%s: %v (%v) after 7 was written on the other side", c.dtype, v, err)
		}
		size := c.dtype.Bytes()
		copy(a.Data[5*size:], a.Data[:size])
		if v, err := first.At(1, 2); v != c.one {
			t.Errorf("%s: %v (%v) after 1 was written into the array", c.dtype, v, err)
		}
	}
}

func TestScalar(t *testing.T) {
	a, err := gorgonia.FromDense(tensor.New(tensor.FromScalar(float32(3))))
	if err != nil || len(a.Shape) != 0 || a.Float32s()[0] != 3 {
		t.Fatalf("%v %v", a, err)
	}
	back, err := gorgonia.ToDense(a)
	if err != nil || back.ScalarValue() != float32(3) {
		t.Fatalf("%v %v", back, err)
	}
}

// TestViews draws slices and transpositions: FromDense gives either what At
// reads or an error, after whose advice it gives that.
func TestViews(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		x := drawView(t)
		want := elements(x)
		a, err := gorgonia.FromDense(x)
		if err != nil {
			y := x
			switch {
			case strings.Contains(err.Error(), "Slice() and Materialize()"):
				view, err := x.Slice()
				if err != nil {
					t.Fatal(err)
				}
				y = view.Materialize().(*tensor.Dense)
			case strings.Contains(err.Error(), "Materialize()"):
				y = x.Materialize().(*tensor.Dense)
			case strings.Contains(err.Error(), "Transpose() the tensor before slicing it"):
				return
			default:
				t.Fatal(err)
			}
			if a, err = gorgonia.FromDense(y); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(a.Shape, x.Shape()) || !slices.Equal(a.Float32s(), want) {
			t.Fatalf("shape %v and elements %v, want %v and %v", a.Shape, a.Float32s(), x.Shape(), want)
		}
	})
}

func drawView(t *rapid.T) *tensor.Dense {
	shape := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 3).Draw(t, "shape")
	x := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(tensor.Range(tensor.Float32, 0, tensor.Shape(shape).TotalSize())))
	if rapid.Bool().Draw(t, "column-major") {
		x = tensor.New(tensor.WithShape(shape...), tensor.AsFortran(x.Float32s()))
	}
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		if x.Dims() == 0 || len(x.Strides()) < x.Dims() {
			break // gorgonia panics on changes of column-major vectors
		}
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 0:
			if err := x.T(); err != nil {
				t.Fatal(err)
			}
		case 1:
			if err := x.Transpose(); err != nil {
				t.Fatal(err)
			}
		case 2:
			axis := rapid.IntRange(0, x.Dims()-1).Draw(t, "axis")
			lo := rapid.IntRange(0, x.Shape()[axis]-1).Draw(t, "lo")
			hi := rapid.IntRange(lo+1, x.Shape()[axis]).Draw(t, "hi")
			parts := make([]tensor.Slice, axis+1)
			parts[axis] = tensor.S(lo, hi, rapid.IntRange(1, 2).Draw(t, "step"))
			view, err := x.Slice(parts...)
			if err != nil {
				t.Fatal(err)
			}
			x = view.(*tensor.Dense)
		}
	}
	return x
}

// elements reads x one by one, last axis fastest.
func elements(x *tensor.Dense) []float32 {
	if x.IsScalar() {
		return []float32{x.ScalarValue().(float32)}
	}
	var all []float32
	index := make([]int, x.Dims())
	for range x.Shape().TotalSize() {
		v, err := x.At(index...)
		if err != nil {
			panic(err)
		}
		all = append(all, v.(float32))
		for k := len(index) - 1; k >= 0; k-- {
			if index[k]++; index[k] < x.Shape()[k] {
				break
			}
			index[k] = 0
		}
	}
	return all
}
