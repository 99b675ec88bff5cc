package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/lowering"
)

// needs is the memory that a program of a rank needs, in bytes.
type needs struct {
	arena           int64
	inputs, outputs int   // on the host; inputs are on the device, too
	scratch         int64 // of kernels, one after another
	staging         int64 // of collectives
	gemm            bool  // there are products for cuBLAS
}

// needs returns the memory that a program needs. It depends on the sizes of tensors, not on their
// addresses.
func (r *rank) needs(key programKey) needs {
	var n needs
	if !key.once {
		n.inputs, n.outputs = r.ioBytes(key)
	}
	if !key.once && !key.trial.replay {
		n.arena = operand.Arena(r.s, key.z)
	}
	_ = r.each(key, func(c *call) error {
		switch c.step.Kind {
		case lowering.Launch:
			if !hasKernel(c.step) {
				break
			}
			return r.kinds(key, c, func(int) error {
				r.scratchOf(c, &n)
				return nil
			})
		case lowering.Collective:
			if !r.sumsOverPeers(c) {
				n.staging = max(n.staging, r.stagingBytes(c))
			}
		}
		return nil
	})
	return n
}

// scratchOf adds what the parts of a call need.
func (r *rank) scratchOf(c *call, n *needs) {
	n.scratch = max(n.scratch, c.kernel().Scratch(&c.on))
	for _, part := range c.kernel().Parts(&c.on) {
		if g := r.product(c, &part); g != nil {
			n.gemm = true
			n.scratch = max(n.scratch, int64(part.Call.Scratch-c.on.Scratch)+g.scratch())
		}
	}
}

// reserve grows the rank's memory, and reports whether some of it moved.
func (r *rank) reserve(n needs) (moved bool, err error) {
	for _, x := range []struct {
		what string
		m    interface {
			reserve(*gpu, int64) (bool, error)
		}
		bytes int64
	}{
		{"activations", &r.arena, n.arena},
		{"inputs", &r.inputs, int64(n.inputs)},
		{"inputs on the host", &r.inputsHost, int64(n.inputs)},
		{"outputs on the host", &r.outputsHost, int64(n.outputs)},
		{"scratch of kernels", &r.scratch, n.scratch},
		{"staging of collectives", &r.staging, n.staging},
	} {
		m, err := x.m.reserve(r.gpu, x.bytes)
		if err != nil {
			return false, fmt.Errorf("%s: %w", x.what, err)
		}
		moved = moved || m
	}
	if n.gemm {
		return moved, r.gemm.reserve(r.gpu)
	}
	return moved, nil
}
