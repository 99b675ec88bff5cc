package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{"delta_scan": {launch: deltaScan}})

const (
	deltaRows    = 32  // of a state, that a warp has
	deltaColumns = 32  // that a block has
	deltaMost    = 256 // rows that a block's warps have
	deltaPart    = 644 // bytes of shared memory of a warp for a token
)

// deltaScan launches one kernel for tokens and prompts.
func deltaScan(c *Call) error {
	q, k, v, g, beta, state, seg, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], &c.Args[6], &c.Results[0]
	heads, n, size := beta.Cols, state.Dims[2], state.Dims[3]
	if n > deltaMost {
		return fmt.Errorf("delta_scan has heads of keys of %d; CUDA kernels take up to %d: run it on the CPU", n, deltaMost)
	}
	if heads == 0 {
		return nil
	}
	warps := ceilDiv(n, deltaRows)
	first, each, skip := groupsOf(&beta.Tensor, &k.Tensor, n)
	c.launch("delta_"+format(state.DType), "delta_scan_steps", [3]int{seg.Rows(), heads, ceilDiv(size, deltaColumns)}, [3]int{32 * warps}, 2*warps*deltaPart,
		Struct{y.Ptr, q.Ptr, k.Ptr, v.Ptr, g.Ptr, beta.Ptr, state.Ptr, seg.Ptr,
			y.stride(), q.stride(), k.stride(), v.stride(), g.stride(), beta.stride(), state.stride(),
			n, size, g.Cols / heads, Struct{first, each, skip}, float32(c.Attrs.Float("scale"))})
	return nil
}
