package cuda

import (
	"testing"

	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// apart gives the results of the operations that a fused one stands for, from
// its operands.
var apart = map[string]func(r *runner, c kernels.Call) []kernels.Tensor{
	"add_rmsnorm": func(r *runner, c kernels.Call) []kernels.Tensor {
		sum := r.run("add", c.Results[0], c.Args[0], c.Args[1])
		return []kernels.Tensor{sum, r.run("rmsnorm", c.Results[1], sum, c.Args[2])}
	},
	"conv1d_silu": func(r *runner, c kernels.Call) []kernels.Tensor {
		sum := r.run("conv1d", c.Results[0], c.Args[0], c.Args[1], c.Args[3], c.Args[4])
		return one(r.run("silu", c.Results[0], r.run("bias", c.Results[0], sum, c.Args[2])))
	},
	"silu_mul": func(r *runner, c kernels.Call) []kernels.Tensor {
		return one(r.run("mul", c.Results[0], c.Args[1], r.run("silu", c.Results[0], c.Args[0])))
	},
	"bias_softplus": func(r *runner, c kernels.Call) []kernels.Tensor {
		return one(r.run("softplus", c.Results[0], r.run("bias", c.Results[0], c.Args[0], c.Args[1])))
	},
	"add_scaled": func(r *runner, c kernels.Call) []kernels.Tensor {
		return one(r.run("add", c.Results[0], c.Args[0], r.run("scale", c.Results[0], c.Args[1], c.Args[2])))
	},
}

// runner runs operations by name on a device.
type runner struct {
	t   *rapid.T
	dev *device
	c   kernels.Call // of the fused operation
}

func (r *runner) run(name string, result kernels.Tensor, args ...kernels.Tensor) kernels.Tensor {
	op := findOp(r.t, name)
	c := call(r.c.Attrs, one(result), args...)
	if op.States != nil {
		c.Results = r.c.Results
	}
	out, _ := once(r.t, op, &c, Options{}, map[int]Tensor{}, r.dev)
	return out[0]
}

// TestFused: fused operations give the bits of those that they stand for.
func TestFused(t *testing.T) {
	for name, steps := range apart {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkAgain(t, name, func(t *rapid.T) {
				c, dev := cases[name](newDraw(t))(), newDevice(t)
				got, _ := once(t, findOp(t, name), &c, Options{}, map[int]Tensor{}, dev)
				for i, want := range steps(&runner{t, dev, c}, c) {
					same(t, "result", &got[i], &want, 0)
				}
			})
		})
	}
}
