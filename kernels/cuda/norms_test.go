package cuda

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// normEachCase norms three rows: of one that is wider, fields, whose memory is not aligned where
// those before are not of eights, and the last is often followed by others.
func normEachCase(d *draw) func() kernels.Call {
	var widths [3]int
	var weights [3]kernels.Tensor
	for i, name := range []string{"x", "y", "z"} {
		widths[i] = d.size(name, 31, 33, 127, 128, 129, 160, 257)
		weights[i] = d.packed(graph.F32, widths[i])
	}
	return func() kernels.Call {
		t, c := d.size("t"), kernels.Call{Attrs: graph.Attrs{"eps": 0.5}}
		for i, width := range widths {
			c.Args = append(c.Args, d.tensor(graph.F32, t, width), weights[i])
			c.Results = append(c.Results, d.tensor(graph.F32, t, width))
		}
		return c
	}
}

func unitNormEachCase(d *draw) func() kernels.Call {
	next := normEachCase(d)
	return func() kernels.Call {
		c := next()
		c.Args = []kernels.Tensor{c.Args[0], c.Args[2], c.Args[4]}
		return c
	}
}

// TestNormedStates: a scan whose kernel norms B and C has states for the lanes of a channel at
// most; of more, the norms and the product are by themselves.
func TestNormedStates(t *testing.T) {
	for n, want := range map[int]int{fewStates: 1, fewStates + 1: 3} {
		fixed(t, uint64(n), func(rt *rapid.T) {
			d, dev := newDraw(rt), newDevice(rt)
			d.oneGroup, d.decode = true, true
			next := projectedCase(d, gatedCase(d, selectiveOf(d, n), nil))
			c := next()
			c.Attrs = graph.Attrs{"eps": 0.5}
			op := findOp(t, "selective_scan_unit_normed")
			if got := len(Kernels[op.Name].Parts(dev.deviceCall(op, &c, map[int]Tensor{}, d.offset))); got != want {
				t.Errorf("%d states: %d parts, want %d", n, got, want)
			}
			got, _ := once(rt, op, &c, Options{}, map[int]Tensor{}, dev)
			held := clone(&c.Args[op.States[0].Operand])
			c.Args[op.States[0].Operand], c.Results[op.States[0].Result] = held, held
			reference.Kernels[op.Name].Run(&c, 0, 1)
			same(rt, "result", &got[0], &c.Results[0], 1e-5)
		})
	}
}

// selectiveUnitNormedCase is the scan with dt_proj, of one group of B and C.
func selectiveUnitNormedCase(d *draw) func() kernels.Call {
	d.oneGroup = true
	next := selectiveProjectedCase(d)
	return func() kernels.Call {
		c := next()
		c.Attrs = graph.Attrs{"eps": 0.5}
		return c
	}
}

func selectiveNormedCase(d *draw) func() kernels.Call {
	next := selectiveUnitNormedCase(d)
	var x, b, c kernels.Tensor
	return func() kernels.Call {
		call := next()
		a := call.Args
		if x.F32 == nil {
			x, b, c = d.packed(graph.F32, a[1].Cols), d.packed(graph.F32, a[5].Cols), d.packed(graph.F32, a[6].Cols)
		}
		call.Args = []kernels.Tensor{a[0], a[1], x, a[2], a[3], a[4], a[5], b, a[6], c, a[7], a[8], a[9], a[10]}
		return call
	}
}

// gatedMatmulCase is two products of the same rows. Their weights may lie in memory apart. They are
// such that products are near one, as of a model: of numbers far from it, what rounding does to one
// factor would be multiplied by the other.
func gatedMatmulCase(d *draw) func() kernels.Call {
	next := matmulCase(d)
	var w, v kernels.Tensor
	return func() kernels.Call {
		c := next()
		if w.Cols == 0 {
			w = c.Args[1]
			format := w.DType
			if d.pick("formats", 0, 0, 0, 0, 0, 1) == 1 {
				format = d.format()
			}
			v = d.tensor(format, w.Dims[0], w.Cols)
			for _, half := range []*kernels.Tensor{&w, &v} {
				d.fill(half, func(a float64) float64 { return a / math.Sqrt(float64(w.Cols)) })
			}
		}
		c.Args = []kernels.Tensor{c.Args[0], w, v}
		return c
	}
}

func normGatedMatmulCase(d *draw) func() kernels.Call {
	next := gatedMatmulCase(d)
	var g kernels.Tensor
	return func() kernels.Call {
		c := next()
		if g.F32 == nil {
			g = d.packed(graph.F32, c.Args[0].Cols)
		}
		c.Args = []kernels.Tensor{c.Args[0], g, c.Args[1], c.Args[2]}
		c.Attrs = graph.Attrs{"eps": 0.5}
		return c
	}
}
