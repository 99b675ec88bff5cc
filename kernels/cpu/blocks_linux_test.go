package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestMatmulBlocksStays: no byte behind the operands and the result is touched, nor
// read of x between what a rank has.
func TestMatmulBlocksStays(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(3, 4))
		for i := range 198 {
			d, k := blockTypes()[i%len(blockTypes())], 1+i
			for rank := range 2 {
				tokens, n := 1+k%7, 4+k%4
				w := heldBlocks(t, splitAlong(rng, d, n, k), drawBlocks(rng, d, n, k), 2, rank, 0)
				x, y := table(graph.F32, tokens, w.Cols, w.Cols, 0), table(graph.F32, tokens, n, n, 0)
				x.F32, y.F32 = guarded[float32](t, tokens*w.Cols), guarded[float32](t, tokens*n)
				data := guarded[byte](t, len(w.U8))
				copy(data, w.U8)
				w.U8 = data
				call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				kernel.Run(call, 0, kernel.Units(call))
			}
		}
	})
}
