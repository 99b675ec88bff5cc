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

	deltaChunk       = 32    // tokens, half as many where rows have their decays
	deltaChunkRows   = 128   // of a state, where they have
	deltaChunkShared = 15360 // bytes of shared memory beside keys, queries, their decays and the state
)

// deltaScan launches one kernel: for prompts in chunks if a block's shared memory suffices, and for
// a decay for each row if there are few, else for tokens one by one.
func deltaScan(c *Call) error {
	q, k, v, g, beta, state, seg, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5], &c.Args[6], &c.Results[0]
	heads, n, size := beta.Cols, state.Dims[2], state.Dims[3]
	if n > deltaMost {
		return fmt.Errorf("delta_scan has heads of keys of %d; CUDA kernels take up to %d: run it on the CPU", n, deltaMost)
	}
	if heads == 0 {
		return nil
	}
	per := g.Cols / heads // decays of a head
	first, each, skip := groupsOf(&beta.Tensor, &k.Tensor, n)
	launch := func(function string, threads, shared int) error {
		c.launch("delta_"+format(state.DType), function, [3]int{seg.Rows(), heads, ceilDiv(size, deltaColumns)}, [3]int{threads}, shared,
			Struct{y.Ptr, q.Ptr, k.Ptr, v.Ptr, g.Ptr, beta.Ptr, state.Ptr, seg.Ptr,
				y.stride(), q.stride(), k.stride(), v.stride(), g.stride(), beta.stride(), state.stride(),
				n, size, per, Struct{first, each, skip}, float32(c.Attrs.Float("scale")), n%4 == 0 && aligned(q, k) && (per == 1 || aligned(g))})
		return nil
	}
	shared := deltaChunkShared + (2*deltaChunk+deltaColumns)*4*(ceilDiv(n, 4)*4+4)
	if n > 0 && !c.tokenEach(6) && c.fits(shared) {
		switch {
		case per == 1:
			return launch("delta_scan_chunks", 256, shared)
		case n <= deltaChunkRows:
			return launch("delta_scan_chunks_rows", 256, shared)
		}
	}
	warps := ceilDiv(n, deltaRows)
	return launch("delta_scan_steps", 32*warps, 2*warps*deltaPart)
}
