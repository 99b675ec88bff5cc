package gorgonia_test

import (
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestFaults shows what the package's documentation warns of. Where one of these
// fails, Gorgonia has been mended: take the warning back.
func TestFaults(t *testing.T) {
	fresh := func() *tensor.Dense {
		return tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))
	}
	t.Run("product of a view of columns", func(t *testing.T) {
		wide := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 9, 3, 4, 9}))
		view, err := wide.Slice(nil, tensor.S(0, 2))
		if err != nil {
			t.Fatal(err)
		}
		one := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 0, 0, 1}))
		y, err := tensor.MatMul(view, one)
		if err != nil || slices.Equal(y.Data().([]float64), []float64{1, 2, 3, 4}) {
			t.Errorf("%v %v", y, err)
		}
	})
	t.Run("copy of a slice of a transposed tensor", func(t *testing.T) {
		x := fresh()
		if err := x.T(); err != nil {
			t.Fatal(err)
		}
		view, err := x.Slice(tensor.S(0))
		if err != nil {
			t.Fatal(err)
		}
		if y := view.Materialize().Data().([]float64); slices.Equal(y, []float64{1, 3}) {
			t.Errorf("%v", y)
		}
	})
	t.Run("copy of a column-major tensor", func(t *testing.T) {
		to := tensor.New(tensor.WithShape(2, 2), tensor.Of(tensor.Float64))
		from := tensor.New(tensor.WithShape(2, 2), tensor.AsFortran([]float64{1, 2, 3, 4}))
		if err := tensor.Copy(to, from); err != nil || slices.Equal(to.Float64s(), []float64{1, 2, 3, 4}) {
			t.Errorf("%v %v", to, err)
		}
	})
	t.Run("two slices of one tensor", func(t *testing.T) {
		g := G.NewGraph()
		x := G.NodeFromAny(g, tensor.New(tensor.WithBacking(tensor.Range(tensor.Float64, 0, 512))), G.WithName("x"))
		lo, hi := G.Must(G.Slice(x, G.S(0, 256))), G.Must(G.Slice(x, G.S(256, 512)))
		if lo != hi {
			t.Errorf("%v and %v are two nodes", lo, hi)
		}
	})
	t.Run("softmax and its logarithm", func(t *testing.T) {
		g := G.NewGraph()
		x := G.NodeFromAny(g, fresh(), G.WithName("x"))
		if soft, log := G.Must(G.SoftMax(x, 1)), G.Must(G.LogSoftMax(x, 1)); soft != log {
			t.Errorf("%v and %v are two nodes", soft, log)
		}
	})
}
