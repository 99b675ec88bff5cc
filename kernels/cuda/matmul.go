package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"matmul":          {launch: matmul, accepts: productAccepts},
	"matmul_add":      {launch: matmulAdd, accepts: productAccepts},
	"norm_matmul":     {launch: normMatmul, parts: normParts},
	"norm_matmul_add": {launch: normMatmul, parts: normParts},

	"gated_matmul":      {launch: gatedMatmul, parts: gatedParts},
	"norm_gated_matmul": {launch: gatedMatmul, parts: gatedParts},
})

const (
	gemvCols           = 4       // columns of a block, where enough blocks have as many
	gemvBlocks         = 256     // blocks that fill a GPU
	gemvRows           = 8       // rows of a pass over the weight
	gatedCols          = 2       // columns of a block, of each of two weights
	fewRows            = 32      // with more, tiles are faster
	tileRows, tileCols = 128, 64 // of f32

	mmaFew           = 64 // with more rows, tiles are faster
	mmaBlocks        = 16 // with fewer blocks, more of smaller ones are faster
	fewPass, fewCols = 32, 64
	mmaRows, mmaCols = 128, 128 // of bf16 tiles
	mmaThreads       = 256

	splitRows, splitCols = 64, 128 // of tiles of numbers that are taken apart
	splitWide            = 256     // columns, by bf16
	splitHigh            = 128     // rows, by f32
)

// splitBlocks is how many of the wide blocks are enough. Tests make it smaller.
var splitBlocks = 256

// product is x wᵀ, of x normed if there is a weight of the norm, and plus a sum, if there
// is one.
type product struct {
	x, w, y, norm, sum *Tensor
}

// matmul is x wᵀ.
func matmul(c *Call) error {
	return c.multiply(&product{x: &c.Args[0], w: &c.Args[1], y: &c.Results[0]})
}

// matmulAdd is x wᵀ + y.
func matmulAdd(c *Call) error {
	return c.multiply(&product{x: &c.Args[0], w: &c.Args[1], sum: &c.Args[2], y: &c.Results[0]})
}

// productAccepts: a library reads x in bf16 by weights in that format, and then writes y so, unless
// it is a sum, which goes on to be one. Tiles of our own have f32: for each mixture of formats
// drivers would compile one more.
func productAccepts(c *Call) []int {
	p := &product{x: &c.Args[0], w: &c.Args[1], y: &c.Results[0]}
	switch {
	case !c.Options.Library || p.y.Rows() <= fewRows || p.w.DType != graph.BF16 || !c.tensorCores(p):
		return nil
	case len(c.Args) > 2 || p.x.DType != graph.BF16:
		return []int{0}
	}
	return []int{0, 2}
}

// normMatmul is norm_matmul, and with a fourth operand norm_matmul_add.
func normMatmul(c *Call) error {
	p := &product{x: &c.Args[0], norm: &c.Args[1], w: &c.Args[2], y: &c.Results[0]}
	if len(c.Args) > 3 {
		p.sum = &c.Args[3]
	}
	return c.multiply(p)
}

// normParts: where rows are many, they are normed once, and not by every block.
func normParts(c *Call) bool {
	return !c.isGemv(&product{x: &c.Args[0], w: &c.Args[2], y: &c.Results[0]})
}

func (p *product) args(t, n, k int) []any {
	return []any{p.y.Ptr, p.y.stride(), p.x.Ptr, p.x.stride(), p.w.Ptr, p.w.stride(), t, n, k}
}

// added is the sum as kernels take it.
func (p *product) added() []any {
	if p.sum == nil {
		return []any{uint64(0), int64(0)}
	}
	return []any{p.sum.Ptr, p.sum.stride()}
}

// tensorCores reports whether a product of rows may be of bf16.
func (c *Call) tensorCores(p *product) bool {
	return c.Options.Math == BF16 && aligned(p.x, p.w) && p.w.Cols%8 == 0
}

// split reports whether a product of many rows is one of bf16 with the numbers of x, and of w,
// taken apart: f32's result but for the last bits, at a third of bf16's rate, a fifth by weights in
// f16, and a sixth by those in f32.
func (c *Call) split(p *product) bool {
	pays := p.w.DType != graph.F32 || c.Options.Split && c.fits(splitShared(p.w.DType))
	return c.Options.Math == F32 && pays && aligned(p.x, p.w) && p.w.Cols%8 == 0
}

// Splits reports whether a product splits f32 into three bf16 for tensor cores.
func (p *Part) Splits() bool {
	product := &product{x: &p.Args[0], w: &p.Args[1], y: &p.Results[0]}
	return !p.isGemv(product) && p.split(product)
}

// splitShared is what such a tile takes of dynamic shared memory: as two steps of all pieces, of 24
// numbers of 16 bits for each row of x and w, where they are not in static memory.
func splitShared(w graph.DType) int {
	if w != graph.F32 {
		return 0
	}
	return 2 * 3 * (splitHigh + splitCols) * 24 * 2
}

// splitTile is how many rows and columns such a product's tiles have. Of all sizes results are the
// same.
func splitTile(w graph.DType, t, n int) (rows, cols int) {
	switch {
	case w == graph.F32:
		return splitHigh, splitCols
	case w == graph.BF16 && ceilDiv(t, splitRows)*ceilDiv(n, splitWide) >= splitBlocks:
		return splitRows, splitWide
	}
	return splitRows, splitCols
}

// isGemv reports whether a product is of so few rows that it is not done by tiles.
func (c *Call) isGemv(p *product) bool {
	t, n := p.y.Rows(), p.w.Rows()
	return t <= fewRows && !(c.tensorCores(p) && t > gemvRows && n >= mmaBlocks*fewCols)
}

func (c *Call) multiply(p *product) error {
	t, n, k := p.y.Rows(), p.w.Rows(), p.w.Cols
	name, args := format(p.w.DType), p.args(t, n, k)
	if p.x.DType != graph.F32 || p.y.DType != graph.F32 {
		panic(fmt.Sprintf("BUG: a product of activations in %s is the library's", p.x.DType))
	}
	vec := alignment(aligned(p.x, p.w) && (p.norm == nil || p.norm.Ptr%16 == 0), aligned(p.y))
	switch {
	case c.isGemv(p):
		c.gemv(p, append(append(args, vec), p.added()...))
	case c.tensorCores(p) && t > mmaFew:
		grid := [3]int{ceilDiv(t, mmaRows), ceilDiv(n, mmaCols), 1}
		c.launch("matmul_mma_"+name, "mma_tile_"+name, grid, [3]int{mmaThreads}, 0, append(append(args, vec), p.added()...)...)
	case c.tensorCores(p):
		grid := [3]int{ceilDiv(t, fewPass), ceilDiv(n, fewCols), 1}
		c.launch("matmul_mma_"+name, "mma_few_"+name, grid, [3]int{mmaThreads}, 0, append(append(args, vec), p.added()...)...)
	case c.split(p):
		rows, cols := splitTile(p.w.DType, t, n)
		grid := [3]int{ceilDiv(t, rows), ceilDiv(n, cols), 1}
		c.launch("matmul_split_"+name, fmt.Sprint("mma_split_", name, "_", cols), grid, [3]int{mmaThreads}, splitShared(p.w.DType), append(append(args, vec), p.added()...)...)
	default:
		grid := [3]int{ceilDiv(t, tileRows), ceilDiv(n, tileCols), 1}
		c.launch("matmul_"+name, "matmul_"+name, grid, [3]int{128}, 0, append(append(args, vec), p.added()...)...)
	}
	return nil
}

// gemv launches a product of few rows. One row by a small weight has a block for each
// column, so that most multiprocessors have one.
func (c *Call) gemv(p *product, args []any) {
	t, n, k := p.y.Rows(), p.w.Rows(), p.w.Cols
	m, cols := gemvPass(t), gemvCols
	if m == 1 && n < gemvCols*gemvBlocks {
		cols = 1
	}
	name := fmt.Sprint("gemv_", format(p.w.DType), "_", m, "_", cols)
	if p.norm != nil {
		name, args = "norm_"+name, append(args, p.norm.Ptr, float32(c.Attrs.Float("eps")))
	}
	c.launch("gemv_"+format(p.w.DType), name, gemvGrid(t, m, ceilDiv(n, cols)), gemvThreads(k), 0, args...)
}

// gated is a product that another one gates.
type gated struct {
	product
	other *Tensor // the second weight
}

// gatedProduct: x w v, or x norm w v.
func gatedProduct(c *Call) *gated {
	a, p := c.Args, &gated{product: product{x: &c.Args[0], y: &c.Results[0]}}
	if len(a) > 3 {
		p.norm, a = &a[1], a[1:]
	}
	p.w, p.other = &a[1], &a[2]
	return p
}

// gatedParts: where rows are many, both products are tiles. Without a norm there is a kernel for
// one row only.
func gatedParts(c *Call) bool {
	p := gatedProduct(c)
	return !c.isGemv(&p.product) || p.w.DType != p.other.DType || p.norm == nil && p.y.Rows() > 1
}

// gatedMatmul is gated_matmul, and with four operands norm_gated_matmul.
func gatedMatmul(c *Call) error {
	p, norm, name := gatedProduct(c), Tensor{}, "gated_gemv_"
	t, n, k := p.y.Rows(), p.w.Rows(), p.w.Cols
	if p.norm != nil {
		norm, name = *p.norm, "norm_gated_gemv_"
	}
	m, vec := gemvPass(t), alignment(aligned(p.x, p.w, p.other) && norm.Ptr%16 == 0, false)
	args := append(p.args(t, n, k), vec, p.other.Ptr, p.other.stride(), norm.Ptr, float32(c.Attrs.Float("eps")))
	c.launch("gemv_"+format(p.w.DType), fmt.Sprint(name, format(p.w.DType), "_", m), gemvGrid(t, m, ceilDiv(n, gatedCols)), gemvThreads(k), 0, args...)
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

// gemvGrid has the blocks of all passes over t rows of x side by side, for each of the weight's
// pieces, which are along y, and z where y would be too long.
func gemvGrid(t, m, pieces int) [3]int {
	z := max(1, ceilDiv(pieces, maxGridYZ)) // a weight may have no rows
	return [3]int{ceilDiv(t, m), ceilDiv(pieces, z), z}
}

// gemvPass is how many of t rows a pass over the weight takes.
func gemvPass(t int) int {
	m := 1
	for m < t && m < gemvRows {
		m *= 2
	}
	return m
}

// gemvThreads are those that divide the eights of k best: as many warps, up to 8, as leave
// the fewest threads without work in the last of their steps.
func gemvThreads(k int) [3]int {
	eights, best, idle := ceilDiv(k, 8), 32, 0
	for threads := 32; threads <= 256; threads += 32 {
		if rest := ceilDiv(eights, threads)*threads - eights; threads == 32 || rest <= idle {
			best, idle = threads, rest
		}
	}
	return [3]int{best}
}
