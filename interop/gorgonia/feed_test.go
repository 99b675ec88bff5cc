package gorgonia_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/interop/gorgonia"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/lowering"
	"gorgonia.org/tensor"
)

// engine runs y = x w and both fields of y, with x[t 2] and w[a:2|b:1 2].
func engine(t *testing.T, params map[string]*tensor.Dense) (*exec.Engine, error) {
	b := graph.New("feed")
	x := b.Input("x", graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(2)))
	out := graph.Pack(graph.Field{Name: "a", Size: 2, Unit: 1}, graph.Field{Name: "b", Size: 1, Unit: 1})
	y := b.MatMul("y", x, b.Param("w", graph.TypeOf(graph.F32, out, graph.Size(2)), nil))
	b.Output("y", y)
	b.Output("a", b.Field("a", y))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	return exec.New(s, gorgonia.Tensors(params), exec.Options{Device: &cpu.Device{}})
}

// TestFeed gives an engine weights and inputs, and changes both in place.
func TestFeed(t *testing.T) {
	x := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 0, 0, 1}))
	w := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	e, err := engine(t, map[string]*tensor.Dense{"w": w})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	slot, err := e.Alloc()
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := gorgonia.Inputs(map[string]*tensor.Dense{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	var results exec.Results
	step := func(tokens int, want ...float32) {
		t.Helper()
		batch := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Len: tokens}}, Inputs: inputs}
		if results, err = e.Step(context.Background(), &batch); err != nil {
			t.Fatal(err)
		}
		if y := output(t, results, "y"); !slices.Equal(y.Float32s(), want) || !slices.Equal(y.Shape(), tensor.Shape{tokens, 3}) {
			t.Errorf("%v, want %v", y, want)
		}
	}
	step(2, 1, 3, 5, 2, 4, 6)
	x.Set(0, float32(10))
	w.Set(5, float32(7))
	step(2, 10, 30, 50, 2, 4, 7)

	out, err := results.Output("y")
	if err != nil {
		t.Fatal(err)
	}
	if output(t, results, "y").Set(4, float32(8)); out.Row(1)[1] != 8 {
		t.Error("the result does not share the engine's memory")
	}
	field, err := results.Output("a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = gorgonia.Output(field)
	refused(t, err, "rows of 2 elements lie 3 apart")

	row, err := x.Slice(tensor.S(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	if inputs, err = gorgonia.Inputs(map[string]*tensor.Dense{"x": row.(*tensor.Dense)}); err != nil {
		t.Fatal(err)
	}
	step(1, 10, 30, 50)
	if a := output(t, results, "a"); !slices.Equal(a.Float32s(), []float32{10, 30}) {
		t.Errorf("one row of a field is %v, want 10 and 30", a)
	}
}

func output(t *testing.T, results exec.Results, name string) *tensor.Dense {
	t.Helper()
	out, err := results.Output(name)
	if err != nil {
		t.Fatal(err)
	}
	y, err := gorgonia.Output(out)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want one with %q", err, want)
	}
}

// device is an engine whose memory the host cannot reach.
type device struct{ tensor.StdEng }

func (device) AllocAccessible() bool { return false }

func TestRefusals(t *testing.T) {
	matrix := func() *tensor.Dense {
		return tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	}
	columns, err := matrix().Slice(nil, tensor.S(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	transposed := matrix()
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	turned, err := transposed.Slice(tensor.S(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	for want, x := range map[string]*tensor.Dense{
		"nil":                       nil,
		"on a device":               tensor.New(tensor.WithShape(2), tensor.Of(tensor.Float32), tensor.WithEngine(device{})),
		"no elements":               tensor.New(tensor.WithShape(0, 3), tensor.Of(tensor.Float32)),
		"masked":                    tensor.New(tensor.WithBacking([]float32{1, 2}, []bool{true, false})),
		"only float32":              tensor.New(tensor.WithBacking([]int{1, 2})),
		"a view":                    columns.(*tensor.Dense),
		"strides [1 3]":             transposed,
		"Transpose() the tensor":    turned.(*tensor.Dense),
		"Slice() and Materialize()": tensor.New(tensor.WithShape(2, 3), tensor.AsFortran(matrix().Float32s())),
	} {
		_, err := gorgonia.FromDense(x)
		refused(t, err, want)
		_, err = gorgonia.Inputs(map[string]*tensor.Dense{"x": x})
		refused(t, err, "gorgonia tensor x: ")
	}
	data := make([]byte, 17)
	for want, a := range map[string]graph.Array{
		"Convert(graph.F32)":       {DType: graph.F16, Shape: []int{2}, Data: data[:4]},
		"gorgonia has no bf16":     {DType: graph.BF16, Shape: []int{2}, Data: data[:4]},
		"type none":                {},
		"needs 16 bytes":           {DType: graph.F32, Shape: []int{4}, Data: data[:12]},
		"[2 0] has no elements":    {DType: graph.F32, Shape: []int{2, 0}},
		"[-1 -1] has no elements":  {DType: graph.F32, Shape: []int{-1, -1}, Data: data[:4]},
		"not at a multiple of 8":   {DType: graph.I64, Shape: []int{2}, Data: data[1:17]},
		"weights.bin: shape [2 2]": {DType: graph.F32, Shape: []int{2, 2}, From: "weights.bin"},
	} {
		_, err := gorgonia.ToDense(a)
		refused(t, err, want)
	}
	for want, x := range map[string]kernels.Tensor{
		"no elements":         {DType: graph.F32, Dims: [graph.MaxRank]int{0, 5, 1, 1, 1, 1}, Cols: 5, Stride: 5},
		"gorgonia has no f16": {DType: graph.F16, Dims: [graph.MaxRank]int{1, 2, 1, 1, 1, 1}, Cols: 2, Stride: 2, U16: []uint16{0, 0}},
	} {
		_, err := gorgonia.Output(x)
		refused(t, err, want)
	}
	_, err = engine(t, nil)
	refused(t, err, "there is no gorgonia tensor w")
	_, err = engine(t, map[string]*tensor.Dense{"w": matrix()})
	refused(t, err, "gorgonia tensor w has shape [2 3], expected [3 2]")
}

// TestOutputShapes reads results of one, two and three axes.
func TestOutputShapes(t *testing.T) {
	ids := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{2, 1, 1, 1, 1, 1}, Cols: 1, Stride: 1, I32: []int32{3, 4}}
	cube := kernels.Tensor{DType: graph.F32, Dims: [graph.MaxRank]int{1, 2, 2, 1, 1, 1}, Cols: 4, Stride: 9, F32: []float32{1, 2, 3, 4, 5}}
	for want, x := range map[string]kernels.Tensor{"(2, 1)": ids, "(1, 2, 2)": cube} {
		y, err := gorgonia.Output(x)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(y.Shape()); got != want {
			t.Errorf("shape %s, want %s", got, want)
		}
	}
}
