package optest

import (
	"math"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/cpu"
	"github.com/krait-ml/krait/kernels/reference"
)

// own registers an operation of one operand by what it does to a row, plainly and on the CPU.
func own(name, rule string, change func(*graph.Op), plain func(x []float64), fast func(y, x []float32)) {
	op := graph.Op{Name: name, Doc: "of a test", Rule: graph.MustParseRule(rule), Operands: "a", Work: []string{"1"}}
	if change != nil {
		change(&op)
	}
	graph.RegisterOp(op)
	reference.Register(name, func(c *kernels.Call) {
		x, y := &c.Args[0], &c.Results[0]
		row := make([]float64, x.Cols)
		for i := range y.Rows() {
			for j := range row {
				row[j] = reference.At(x, i, j)
			}
			plain(row)
			for j := range row {
				reference.Set(y, i, j, row[j])
			}
		}
	})
	cpu.Register(name, kernels.PerRow(fast))
}

func each64(f func(float64) float64) func(x []float64) {
	return func(x []float64) {
		for j, v := range x {
			x[j] = f(v)
		}
	}
}

func each32(f func(float64) float64) func(y, x []float32) {
	return func(y, x []float32) {
		for j, v := range x {
			y[j] = float32(f(float64(v)))
		}
	}
}

func softsign(x float64) float64 { return x / (1 + math.Abs(x)) }
func square(x float64) float64   { return x * x }

// centre takes the mean away: all of a row is needed.
func centre(x []float64) {
	mean := 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for j := range x {
		x[j] -= mean
	}
}

func centre32(y, x []float32) {
	row := make([]float64, len(x))
	for j, v := range x {
		row[j] = float64(v)
	}
	centre(row)
	for j, v := range row {
		y[j] = float32(v)
	}
}

func init() {
	own("test_softsign", "* -> *", func(op *graph.Op) { op.InPlace = []int{0} }, each64(softsign), each32(softsign))
	own("test_centre", "t d! -> t d!", nil, centre, centre32)
	own("test_centre_cut", "t d -> t d", nil, centre, centre32)
	own("test_square_linear", "* -> *", func(op *graph.Op) { op.Linear = [][]int{{0}} }, each64(square), each32(square))
	own("test_other_kernel", "* -> *", nil, each64(softsign), each32(math.Tanh))
	own("test_in_place", "t d! -> t d!", func(op *graph.Op) { op.InPlace = []int{0} }, func(x []float64) {
		for j := len(x) - 1; j > 0; j-- {
			x[j] += x[j-1]
		}
	}, func(y, x []float32) {
		before := float32(0)
		for j := range y {
			y[j] = x[j] + before
			before = x[j] // which is written already where y is x
		}
	})
	graph.RegisterOp(graph.Op{Name: "test_batch", Doc: "of a test", Rule: graph.MustParseRule("t d -> t d"), Operands: "a", Work: []string{"1 t d"}})
	reference.Register("test_batch", func(c *kernels.Call) {
		reference.Fill(c, func(i, j int) float64 { return reference.At(&c.Args[0], i, j) })
	})
	cpu.Register("test_batch", kernels.Kernel{Units: kernels.RowUnits, Run: func(c *kernels.Call, lo, hi int) {
		for i := lo; i < hi; i++ {
			for j, v := range c.Args[0].Row(i) {
				c.Results[0].Row(i)[j] = v * (1 + float32(c.Args[0].Rows())*1e-6)
			}
		}
	}})
	graph.RegisterOp(graph.Op{Name: "test_bare", Doc: "of a test", Rule: graph.MustParseRule("* -> *"), Operands: "a"})
}

func TestCheck(t *testing.T) {
	Check(t, "test_softsign")
	Check(t, "test_centre")
	Check(t, "silu")
}

// TestCheckFinds: rows that say too much, and kernels that do something else, are found.
func TestCheckFinds(t *testing.T) {
	for op, want := range map[string]string{
		"test_centre_cut":    "the rule lets it be split on",
		"test_square_linear": "the rule lets it be split on",
		"test_other_kernel":  "the CPU's kernel and the reference kernel differ",
		"test_in_place":      "differ",
		"test_batch":         "a sequence alone and in a batch differ",
		"test_bare":          "it has no reference kernel",
		"silo":               "the nearest are silu",
		"field":              "only operations with a rule",
	} {
		if err := check(t.Context(), op, Graphs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", op, err, want)
		}
	}
}
