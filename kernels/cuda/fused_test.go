package cuda

import (
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// TestFused: fused operations give the bits of those that they stand for, but where
// sums are in another order: norms and products that are computed on the way.
func TestFused(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.Apart() == nil {
			continue
		}
		t.Run(op.Name, func(t *testing.T) {
			t.Parallel()
			share := map[string]float64{"norm_matmul": 1e-5, "norm_matmul_add": 1e-5, "norm_router": 1e-5, "selective_scan_projected": 1e-5,
				"selective_scan_normed": 1e-5, "selective_scan_unit_normed": 1e-5, "gated_matmul": 1e-5, "norm_gated_matmul": 1e-5, "rmsnorm_each": 1e-5, "unit_rmsnorm_each": 1e-5}[op.Name]
			checkAgain(t, op.Name, func(t *rapid.T) {
				c, dev := cases[op.Name](newDraw(t))(), newDevice(t)
				got, _ := once(t, op, &c, Options{}, map[int]Tensor{}, dev)
				values := apart(op, &c, func(op *graph.Op, on *kernels.Call) []kernels.Tensor {
					out, _ := once(t, op, on, Options{}, map[int]Tensor{}, dev)
					return out
				})
				for i := range got {
					same(t, "result", &got[i], &values[len(c.Args)+i], share)
				}
			})
		})
	}
}

// apart runs the operations that a fused one stands for, and gives all values. What run gives are results that are
// elsewhere than in the call.
func apart(op *graph.Op, c *kernels.Call, run func(op *graph.Op, on *kernels.Call) []kernels.Tensor) []kernels.Tensor {
	a := op.Apart().Whole()
	values := slices.Concat(c.Args, c.Results)
	for _, like := range a.Like[len(values):] {
		between := kernels.Between(&values[like])
		between.F32 = make([]float32, between.Rows()*between.Cols)
		values = append(values, between)
	}
	for i := range a.Steps {
		s := &a.Steps[i]
		on := kernels.Call{Attrs: s.AttrsOf(c.Attrs)}
		for _, v := range s.Args {
			on.Args = append(on.Args, values[v])
		}
		for _, v := range s.Results {
			on.Results = append(on.Results, values[v])
		}
		out := run(s.Op, &on)
		for k, v := range s.Results[:len(out)] {
			values[v] = out[k]
		}
	}
	return values
}
