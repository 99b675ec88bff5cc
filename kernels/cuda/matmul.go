package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"matmul": {launch: matmul},
})

const (
	gemvCols           = 4       // columns of a block
	gemvRows           = 8       // rows of a pass over the weight
	fewRows            = 32      // with more, tiles are faster
	tileRows, tileCols = 128, 64 // of f32

	mmaFew           = 64 // with more rows, tiles are faster
	mmaBlocks        = 16 // with fewer blocks, more of smaller ones are faster
	fewPass, fewCols = 32, 64
	mmaRows, mmaCols = 128, 128 // of bf16 tiles
	mmaThreads       = 256
)

// matmul is x wᵀ.
func matmul(c *Call) error {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	t, n, k := y.Rows(), w.Rows(), w.Cols
	vec := alignment(aligned(x, w), aligned(y))
	tensorCores := c.Options.Math == BF16 && aligned(x, w) && k%8 == 0
	args := []any{y.Ptr, y.stride(), x.Ptr, x.stride(), w.Ptr, w.stride(), t, n, k}
	name := format(w.DType)
	switch {
	case tensorCores && t > mmaFew:
		grid := [3]int{ceilDiv(t, mmaRows), ceilDiv(n, mmaCols), 1}
		c.launch("matmul_mma_"+name, "mma_tile_"+name, grid, [3]int{mmaThreads}, 0, append(args, vec)...)
	case tensorCores && t > gemvRows && (t > fewRows || n >= mmaBlocks*fewCols):
		grid := [3]int{ceilDiv(t, fewPass), ceilDiv(n, fewCols), 1}
		c.launch("matmul_mma_"+name, "mma_few_"+name, grid, [3]int{mmaThreads}, 0, append(args, vec)...)
	case t > fewRows:
		grid := [3]int{ceilDiv(t, tileRows), ceilDiv(n, tileCols), 1}
		c.launch("matmul_"+name, "matmul_"+name, grid, [3]int{128}, 0, append(args, vec)...)
	default:
		m := gemvPass(t)
		passes := ceilDiv(t, m)
		grid := [3]int{passes * ceilDiv(n, gemvCols), 1, 1}
		c.launch("matmul_"+name, fmt.Sprint("gemv_", name, "_", m), grid, gemvThreads(n, k), 0, append(args, passes, vec)...)
	}
	return nil
}

// alignment tells the kernels of products what is aligned: loads, and stores.
func alignment(loads, stores bool) int {
	vec := 0
	if loads {
		vec |= 1
	}
	if stores {
		vec |= 2
	}
	return vec
}

// gemvPass is how many of t rows a pass over the weight takes.
func gemvPass(t int) int {
	m := 1
	for m < t && m < gemvRows {
		m *= 2
	}
	return m
}

// gemvThreads gives every thread at least 8 of k to do, and more threads to a
// block where there are few blocks.
func gemvThreads(n, k int) [3]int {
	most := 128
	if n < 2048 {
		most = 256
	}
	return [3]int{min(most, 32*max(1, ceilDiv(k, 256)))}
}
