package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// atEdge copies a tensor to memory behind which there is none.
func atEdge(t *testing.T, x kernels.Tensor) kernels.Tensor {
	if x.F32 != nil {
		x.F32 = append(guarded[float32](t, len(x.F32))[:0], x.F32...)
	}
	if x.U16 != nil {
		x.U16 = append(guarded[uint16](t, len(x.U16))[:0], x.U16...)
	}
	return x
}

// elementOps are operations on rows: how many of their operands are rows, and how many are
// vectors with a number per channel.
var elementOps = map[string]struct {
	rows, vectors int
	attrs         graph.Attrs
}{
	"add": {2, 0, nil}, "mul": {2, 0, nil}, "times": {1, 0, graph.Attrs{"by": 0.7}}, "bias": {1, 1, nil}, "scale": {1, 1, nil}, "add_scaled": {2, 1, nil},
	"silu": {1, 0, nil}, "silu_mul": {2, 0, nil}, "softplus": {1, 0, nil}, "bias_softplus": {1, 1, nil}, "neg_exp": {1, 0, nil},
	"gelu": {1, 0, nil}, "gelu_tanh": {1, 0, nil}, "relu": {1, 0, nil}, "relu2": {1, 0, nil}, "sigmoid": {1, 0, nil}, "tanh": {1, 0, nil}, "clamp": {1, 0, graph.Attrs{"min": -0.5, "max": 2.0}},
	"rms_rows": {1, 0, graph.Attrs{"width": 3, "eps": 1e-5}},
}

// TestElements: rows of 0 to 65 elements at any address give the bits that each element
// gives alone, touch nothing behind their memory, and nothing between rows.
func TestElements(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-127, math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	for op, o := range elementOps {
		eachISA(t, op, func(t *testing.T, isa string, k kernels.Kernel) {
			rng := rand.New(rand.NewPCG(3, 0))
			number := func() float32 {
				if rng.IntN(9) == 0 {
					return special[rng.IntN(len(special))]
				}
				return float32(3 * rng.NormFloat64())
			}
			for n := range 66 {
				stride := n + n%3
				c := &kernels.Call{Attrs: o.attrs, Results: []kernels.Tensor{atEdge(t, table(graph.F32, 2, n, stride, 0))}}
				fill(&c.Results[0], func() float32 { return 7 })
				for i := range o.rows {
					x := table(graph.F32, 2, n, stride+i, 0)
					fill(&x, number)
					c.Args = append(c.Args, atEdge(t, x))
				}
				if o.vectors > 0 || op == "rms_rows" {
					x := table(graph.F32, max(n, 2), 1, 1, 0)
					if o.vectors > 0 {
						x = table(graph.F32, n, 1, 1, 0)
					}
					fill(&x, func() float32 { return float32(math.Abs(rng.NormFloat64())) })
					c.Args = append(c.Args, atEdge(t, x))
				}
				k.Run(c, 0, 2)
				y := &c.Results[0]
				for i, v := range y.F32 {
					if stride > n && i%stride >= n && v != 7 {
						t.Fatalf("%s %s: wrote between rows of %d", op, isa, n)
					}
				}
				for row := range 2 {
					for j := range n {
						one := &kernels.Call{Attrs: o.attrs, Results: []kernels.Tensor{table(graph.F32, 1, 1, 1, 0)}}
						for i := range o.rows {
							x := table(graph.F32, 1, 1, 1, 0)
							x.F32[0] = c.Args[i].Row(row)[j]
							one.Args = append(one.Args, x)
						}
						for i := o.rows; i < len(c.Args); i++ {
							x, at := table(graph.F32, 1, 1, 1, 0), j
							if o.vectors == 0 {
								at = row
							}
							x.F32[0] = c.Args[i].F32[at]
							one.Args = append(one.Args, x)
						}
						k.Run(one, 0, 1)
						got, want := y.Row(row)[j], one.Results[0].F32[0]
						if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
							t.Fatalf("%s %s: element %d of %d is %g, and %g alone", op, isa, j, n, got, want)
						}
					}
				}
			}
		})
	}
}

// TestVectorsStay: nothing behind the operands of convolutions, scans, norms and
// conversions is touched.
func TestVectorsStay(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	run := func(t *testing.T, k kernels.Kernel, c *kernels.Call) {
		for i := range c.Args {
			c.Args[i] = atEdge(t, c.Args[i])
		}
		for i := range c.Results {
			c.Results[i] = atEdge(t, c.Results[i])
		}
		k.Run(c, 0, k.Units(c))
	}
	eachISA(t, "selective_scan", func(t *testing.T, _ string, k kernels.Kernel) {
		for n := 1; n <= 35; n++ {
			c := newScan(rng, 1+n*2, n, 1, 2)
			for i := range c.Args[:6] {
				c.Args[i].F32 = c.Args[i].F32[:max(0, c.Args[i].Rows()-1)*c.Args[i].Stride+c.Args[i].Cols]
			}
			c.Args[5], c.Results[1] = atEdge(t, c.Args[5]), c.Args[5]
			run(t, k, c.Call)
		}
	})
	eachISA(t, "conv1d", func(t *testing.T, _ string, k kernels.Kernel) {
		for n := 1; n <= 66; n++ {
			state := atEdge(t, table(graph.F32, 1, n*3, n*3, 0))
			seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{1, 3, 1, 1}, Cols: 3, Stride: 3, I32: []int32{0, 3, 0}}
			run(t, k, &kernels.Call{Args: []kernels.Tensor{table(graph.F32, 3, n, n, 0), table(graph.F32, n, 4, 4, 0), state, seg},
				Results: []kernels.Tensor{table(graph.F32, 3, n, n, 0), state}})
		}
	})
	eachISA(t, "rmsnorm", func(t *testing.T, _ string, k kernels.Kernel) {
		for n := 1; n <= 66; n++ {
			run(t, k, &kernels.Call{Args: []kernels.Tensor{table(graph.F32, 2, n, n, 0), table(graph.F32, n, 1, 1, 0)},
				Results: []kernels.Tensor{table(graph.F32, 2, n, n, 0)}, Attrs: graph.Attrs{"eps": 1e-5}})
		}
	})
	for _, d := range []graph.DType{graph.BF16, graph.F16} {
		for _, op := range []string{"quantize", "dequantize"} {
			eachISA(t, op, func(t *testing.T, _ string, k kernels.Kernel) {
				for n := 1; n <= 66; n++ {
					from, to := graph.F32, d
					if op == "dequantize" {
						from, to = to, from
					}
					run(t, k, &kernels.Call{Args: []kernels.Tensor{table(from, 2, n, n, 0)}, Results: []kernels.Tensor{table(to, 2, n, n, 0)}})
				}
			})
		}
	}
}
