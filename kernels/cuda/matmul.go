package cuda

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Set{
	"matmul":          products(plainProduct, nil, productAccepts, productPieces),
	"matmul_add":      products(addedProduct, nil, productAccepts, productPieces),
	"norm_matmul":     products(normedProduct, normParts, nil, nil),
	"norm_matmul_add": products(normedProduct, normParts, nil, nil),

	"gated_matmul":      products(gatedProduct, gatedParts, nil, nil),
	"norm_gated_matmul": products(gatedProduct, gatedParts, nil, nil),
})

const (
	gemvCols           = 4       // columns of a block, where enough blocks have as many
	gemvBlocks         = 256     // blocks that fill a GPU
	gemvRows           = 8       // rows of a pass over the weight
	gatedCols          = 2       // columns of a block, of each of two weights
	fewRows            = 32      // with more, tiles are faster
	tileRows, tileCols = 128, 64 // of f32

	mmaThreads      = 256
	mmaMost         = 64  // rows of a tile
	mmaLeast        = 32  // where rows are up to mmaFused
	mmaFused        = 128 // rows of which every block may take the norm
	mmaNarrow       = 32  // columns of a block, where few would be wide
	mmaWide         = 128 // columns of a block elsewhere
	mmaDepth        = 64  // along k, of which slices are multiples: of a stage at most
	mmaSlices       = 33  // of k, at most: one block adds them up
	mmaDeepest      = 128 // along k, of a slice at least
	mmaIntensity    = 148 // operations of tiles, of bf16, in the time of a byte: 989 T · 0.45 / 3.0 T
	multiprocessors = 132 // of an H100, whose waves choose the slices

	promptRows    = 2048 // of a launch of tiles with slices of k, at most: they have scratch
	promptBlocks  = 512  // of as many rows, that slices are to make
	promptDeepest = 512  // along k, of a slice at least
)

// product is x wᵀ, of x normed if there is a weight of the norm, and plus a sum, if there
// is one. With a second weight it is silu(x wᵀ) · (x otherᵀ).
type product struct {
	x, w, y, norm, sum, other *Tensor

	scratch int64 // that is in use: what is the product's own begins behind it
}

// products is the kernel of an operation that is one product.
func products(of func(c *Call) *product, parts func(c *Call) bool, accepts, pieces func(c *Call) []int) Kernel {
	return Kernel{
		launch: func(c *Call) error {
			p := of(c)
			if !p.w.meets(p.x) {
				c.spread(c.Scratch, p.x, p.w)
			}
			return c.multiply(p.ofBlocks(c.Scratch))
		},
		scratch: func(c *Call) int64 {
			p := of(c).ofBlocks(c.Scratch)
			return p.scratch + c.scratchBytes(p)
		},
		parts: parts, accepts: accepts, pieces: pieces,
	}
}

// ofBlocks is the product with all of the weight's blocks, of what is spread at an address.
func (p *product) ofBlocks(at uint64) *product {
	if p.w.meets(p.x) {
		return p
	}
	q, w := *p, *p.w
	w.Cols = w.blockCols()
	q.x, q.w, q.scratch = spreadOf(at, p.x, p.w), &w, spreadBytes(p.x.Rows(), p.w)
	return &q
}

// eights reports whether x of a product with a norm, or of two weights, need not be spread.
func (p *product) eights() bool {
	return p.w.meets(p.x) && (p.w.Blocks == nil || p.norm == nil || p.norm.Ptr%16 == 0)
}

// plainProduct is x wᵀ.
func plainProduct(c *Call) *product {
	return &product{x: &c.Args[0], w: &c.Args[1], y: &c.Results[0]}
}

// addedProduct is x wᵀ + y.
func addedProduct(c *Call) *product {
	return &product{x: &c.Args[0], w: &c.Args[1], sum: &c.Args[2], y: &c.Results[0]}
}

// normedProduct is norm_matmul, and with a fourth operand norm_matmul_add.
func normedProduct(c *Call) *product {
	p := &product{x: &c.Args[0], norm: &c.Args[1], w: &c.Args[2], y: &c.Results[0]}
	if len(c.Args) > 3 {
		p.sum = &c.Args[3]
	}
	return p
}

// gatedProduct: x w v, or x norm w v.
func gatedProduct(c *Call) *product {
	a, p := c.Args, &product{x: &c.Args[0], y: &c.Results[0]}
	if len(a) > 3 {
		p.norm, a = &a[1], a[1:]
	}
	p.w, p.other = &a[1], &a[2]
	return p
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

// normParts: where rows are many, they are normed once, and not by every block.
func normParts(c *Call) bool {
	p := normedProduct(c)
	return !p.eights() || !c.isGemv(p) && !c.normsFew(p)
}

// normsFew reports whether tiles norm their rows, which few blocks share. With math of bf16, a
// library multiplies more than fewRows, of activations that may be in bf16. Norms that must not
// depend on the number of rows are apart.
func (c *Call) normsFew(p *product) bool {
	most := mmaFused
	switch {
	case c.Options.Invariant:
		return false
	case c.isFew(p):
		return true
	case c.Options.Math == BF16:
		most = fewRows
	}
	return c.onTensorCores(p) && p.y.Rows() <= most && (p.norm == nil || p.norm.Ptr%16 == 0)
}

// gatedParts: where rows are many, each product is one of its own. Without a norm there is a gemv
// for one row only.
func gatedParts(c *Call) bool {
	p := gatedProduct(c)
	if p.w.DType != p.other.DType || p.w.Stride != p.other.Stride || !p.eights() {
		return true
	}
	if c.isGemv(p) {
		return p.norm == nil && (p.y.Rows() > 1 || c.Options.Invariant)
	}
	return !c.normsFew(p) || !aligned(p.other)
}

func (p *product) args(t, n, k int) []any {
	return []any{p.y.Ptr, p.y.stride(), p.x.Ptr, p.x.stride(), p.w.Ptr, p.w.stride(), t, n, k}
}

// added is the sum as kernels take it.
func (p *product) added() Struct {
	if p.sum == nil {
		return Struct{uint64(0), int64(0)}
	}
	return Struct{p.sum.Ptr, p.sum.stride()}
}

// tensorCores reports whether a product of rows may be of bf16.
func (c *Call) tensorCores(p *product) bool {
	return c.Options.Math == BF16 && aligned(p.x, p.w) && p.w.Cols%8 == 0
}

// split reports whether a product of many rows is one of bf16 with the numbers of x, and of w,
// taken apart: f32's result but for the last bits, at a third of bf16's rate, a fifth by weights in
// f16, and a sixth by those in f32.
func (c *Call) split(p *product) bool {
	pays := p.w.DType != graph.F32 || c.Options.Split
	return c.Options.Math == F32 && pays && aligned(p.x, p.w) && p.w.Cols%8 == 0
}

// inPieces reports whether a product is computed on tensor cores, rounded or split.
func (c *Call) inPieces(p *product) bool {
	return p.w.Blocks == nil && (c.tensorCores(p) || c.split(p))
}

// onTensorCores reports whether tiles on tensor cores compute a product of more than a few rows.
func (c *Call) onTensorCores(p *product) bool {
	if !c.inPieces(p) {
		return false
	}
	shared := c.mmaShared(p)
	if c.Options.Invariant {
		shared = c.mmaSharedOf(mmaLeast, mmaWide, p.w.DType)
	}
	return c.fits(shared)
}

// Splits reports whether a product splits f32 into three bf16 for tensor cores.
func (p *Part) Splits() bool {
	return p.splits(&product{x: &p.Args[0], w: &p.Args[1], y: &p.Results[0]})
}

func (c *Call) splits(p *product) bool {
	return !c.isGemv(p) && c.split(p) && (c.isFew(p) || c.onTensorCores(p))
}

// isGemv reports whether a product is of so few rows that it is not done by tiles. If their number
// must not matter, all are done by tiles on tensor cores, or none.
func (c *Call) isGemv(p *product) bool {
	t := p.y.Rows()
	if c.Options.Invariant {
		return !c.onTensorCores(p)
	}
	return t <= 1 || !c.isFew(p) && (t <= gemvRows || t <= fewRows && (p.w.Blocks != nil || !c.onTensorCores(p)))
}

// tile is how many rows, columns, and terms along k a block has of a product on tensor cores.
type tile struct{ rows, cols, deep int }

// tileOf is that of a product that [Call.isGemv] leaves to tensor cores.
func (c *Call) tileOf(p *product) tile {
	if c.isFew(p) {
		return fewTile(p)
	}
	return mmaTile(p)
}

// mmaTile takes narrow blocks where wide ones would leave half of a GPU idle. The width changes no
// bit, so it may depend on the number of rows.
func mmaTile(p *product) tile {
	t := tile{mmaLeast, mmaWide, mmaSlice(p)}
	if p.y.Rows() > mmaFused {
		t.rows = mmaMost
	}
	blocks := ceilDiv(p.columns(), mmaWide) * ceilDiv(p.w.Cols, t.deep) * ceilDiv(p.y.Rows(), t.rows)
	if p.other == nil && blocks < multiprocessors/2 {
		t.cols = mmaNarrow
	}
	return t
}

// columns is how many columns the tiles of a product have, of two weights those of both.
func (p *product) columns() int {
	if p.other != nil {
		return 2 * ceilDiv(p.w.Rows(), 8) * 8
	}
	return p.w.Rows()
}

// mmaSlice is how deep the slices are into which a product's k is cut. It depends on the shape of
// the weight alone, up to mmaFused rows and beyond, and so do the bits of a row.
func mmaSlice(p *product) int {
	n, k := p.columns(), p.w.Cols
	if p.y.Rows() > mmaFused {
		return promptSlice(n, k)
	}
	cols := mmaWide
	if p.other == nil && n < mmaWide {
		cols = mmaNarrow
	}
	best, least := k, math.Inf(1)
	for slices := 1; slices == 1 || slices <= mmaSlices && k >= slices*mmaDeepest && ceilDiv(mmaFused, mmaLeast)*ceilDiv(n, cols) <= MaxArrivals; slices++ {
		depth := ceilDiv(ceilDiv(k, slices), mmaDepth) * mmaDepth
		if takes := mmaTakes(n, k, ceilDiv(n, cols), ceilDiv(k, depth), p.w.DType); takes <= least {
			best, least = depth, takes
		}
	}
	return best
}

// mmaTakes is how long a product of 64 rows takes in slices of k, in the time of a byte: the longer
// of its bytes, where each of several slices moves its sums twice, and its operations, in whole
// waves of blocks.
func mmaTakes(n, k, tiles, slices int, format graph.DType) float64 {
	const rows = 2 * mmaLeast
	moved := n*k*format.Bytes() + rows*(n+k)*4
	if slices > 1 {
		moved += 2 * slices * n * rows * 4
	}
	pieces := map[graph.DType]int{graph.BF16: 3, graph.F16: 5, graph.F32: 6}[format]
	blocks := float64(2 * tiles * slices)
	fill := blocks / multiprocessors
	return max(float64(moved)/min(1, fill), float64(2*pieces*rows*n*k)/mmaIntensity/fill*math.Ceil(fill))
}

// promptSlice is as many slices as fill large GPUs with blocks of prompts of promptRows.
func promptSlice(n, k int) int {
	tiles := promptRows / mmaMost * ceilDiv(n, mmaWide)
	slices := max(1, min(promptBlocks/max(1, tiles), k/promptDeepest, mmaSlices))
	return ceilDiv(ceilDiv(k, slices), mmaDepth) * mmaDepth
}

// inPasses is how many rows a launch of tiles takes: all, or with slices or where bits must not
// depend on the number of rows, an equal share for each of several launches.
func (c *Call) inPasses(p *product) int {
	t := p.y.Rows()
	switch {
	case c.Options.Invariant:
		return ceilDiv(t, max(1, ceilDiv(t, mmaFused)))
	case mmaSlice(p) < p.w.Cols:
		return ceilDiv(t, max(1, ceilDiv(t, promptRows)))
	}
	return t
}

// scratchBytes is the scratch for a product, behind what is in use.
func (c *Call) scratchBytes(p *product) int64 {
	if c.isGemv(p) || p.w.Blocks == nil {
		return c.partialBytes(p)
	}
	return c.widenedBytes(p)
}

// partialBytes is the scratch for what slices of a product sum up.
func (c *Call) partialBytes(p *product) int64 {
	if c.isGemv(p) || !c.isFew(p) && !c.onTensorCores(p) {
		return 0
	}
	if rows := c.inPasses(p); rows < p.y.Rows() {
		p = p.rows(0, rows)
	}
	t := c.tileOf(p)
	slices := ceilDiv(p.w.Cols, t.deep)
	if slices == 1 {
		return 0
	}
	return int64(ceilDiv(p.y.Rows(), t.rows)*ceilDiv(p.columns(), t.cols)*slices) * int64(t.rows*t.cols+t.rows) * 4
}

// mmaShared is the dynamic shared memory of a tile: stages of x, with the norm's weight, and of w,
// and x of a stage in 16 bits, once or in three pieces.
func (c *Call) mmaShared(p *product) int {
	t := mmaTile(p)
	return c.mmaSharedOf(t.rows, t.cols, p.w.DType)
}

func (c *Call) mmaSharedOf(rows, cols int, w graph.DType) int {
	depth, stages, parts := 32, 4, 1
	if rows == mmaLeast && w != graph.F32 {
		depth = 64
	}
	if rows == mmaLeast || w == graph.F32 {
		stages = 3
	}
	if c.Options.Math == F32 {
		parts = 3
	}
	return stages*((rows+1)*depth*4+cols*(depth+8)*w.Bytes()) + parts*rows*(depth+8)*2
}

func (c *Call) multiply(p *product) error {
	t, n, k := p.y.Rows(), p.w.Rows(), p.w.Cols
	if p.x.DType != graph.F32 || p.y.DType != graph.F32 {
		panic(fmt.Sprintf("BUG: a product of activations in %s is the library's", p.x.DType))
	}
	switch {
	case c.isGemv(p) && p.other != nil:
		c.gatedGemv(p)
	case c.isGemv(p):
		c.gemv(p)
	case p.w.Blocks != nil:
		return c.widened(p)
	case c.isFew(p):
		c.few(p)
	case c.onTensorCores(p):
		rows := c.inPasses(p)
		for from := 0; from < t; from += rows {
			c.mma(p.rows(from, min(rows, t-from)))
		}
	default:
		grid := [3]int{ceilDiv(t, tileRows), ceilDiv(n, tileCols), 1}
		name, vec := "matmul_"+format(p.w.DType), alignment(aligned(p.x, p.w), aligned(p.y))
		c.launch(name, name, grid, [3]int{128}, 0, append(Struct(p.args(t, n, k)), vec, p.added()))
	}
	return nil
}

// rows is the product of n rows from one on.
func (p *product) rows(from, n int) *product {
	cut := func(t *Tensor) *Tensor {
		if t == nil {
			return nil
		}
		of := *t
		of.Ptr, of.Dims[0] = of.offset(from*of.Stride), n
		return &of
	}
	part := *p
	part.x, part.y, part.sum = cut(p.x), cut(p.y), cut(p.sum)
	return &part
}

// mma launches tiles on tensor cores.
func (c *Call) mma(p *product) {
	name := "mma_split_"
	if c.Options.Math == BF16 {
		name = "mma_round_"
	}
	t := mmaTile(p)
	c.tiles(p, t, "matmul_mma_", fmt.Sprint(name, format(p.w.DType), "_", t.rows, "_", t.cols), mmaThreads, c.mmaShared(p))
}

// tiles launches a kernel of product.h.
func (c *Call) tiles(p *product, of tile, module, name string, threads, shared int) {
	t, n, k, eps := p.y.Rows(), p.w.Rows(), p.w.Cols, float32(0)
	var norm, other uint64
	if p.norm != nil {
		norm, eps = p.norm.Ptr, float32(c.Attrs.Float("eps"))
	}
	fixed := p.w.Fixed
	if p.other != nil {
		other, fixed = p.other.Ptr, fixed && p.other.Fixed
	}
	add, grid := p.added(), [3]int{ceilDiv(t, of.rows), ceilDiv(p.columns(), of.cols), ceilDiv(k, of.deep)}
	c.launch(module+format(p.w.DType), name, grid, [3]int{threads}, shared,
		Struct{p.y.Ptr, p.y.stride(), p.x.Ptr, p.x.stride(), p.w.Ptr, p.w.stride(), other, add[0], add[1], norm, c.Scratch + uint64(p.scratch), c.Arrivals, t, n, k, of.deep, eps, fixed})
}

// gemv launches a product of few rows. One row by a small weight has a block for each
// column, so that most multiprocessors have one.
func (c *Call) gemv(p *product) {
	m, cols := gemvPass(p.y.Rows(), p.w), gemvCols
	if m == 1 && p.w.Rows() < gemvCols*gemvBlocks {
		cols = 1
	}
	if m == gemvRows {
		cols = p.w.passCols()
	}
	c.gemvLaunch(p, fmt.Sprint("gemv_", format(p.w.DType), "_", m, "_", cols), m, cols)
}

// gatedGemv is gated_matmul of few rows, and with four operands norm_gated_matmul.
func (c *Call) gatedGemv(p *product) {
	m := gemvPass(p.y.Rows(), p.w)
	c.gemvLaunch(p, fmt.Sprint("gated_gemv_", format(p.w.DType), "_", m), m, gatedCols)
}

// gemvLaunch launches a kernel of gemv.cu, of blocks of some rows and columns.
func (c *Call) gemvLaunch(p *product, name string, rows, cols int) {
	t, n, k, eps, loads := p.y.Rows(), p.w.Rows(), p.w.Cols, float32(0), aligned(p.x, p.w)
	var norm, other uint64
	if p.norm != nil {
		name, norm, eps = "norm_"+name, p.norm.Ptr, float32(c.Attrs.Float("eps"))
	}
	if p.other != nil {
		other, loads = p.other.Ptr, loads && aligned(p.other)
	}
	c.launch("gemv_"+format(p.w.DType), name, gemvGrid(t, rows, ceilDiv(n, cols)), gemvThreads(k), 0,
		Struct{append(Struct(p.args(t, n, k)), alignment(loads && norm%16 == 0, aligned(p.y)), p.added()), other, norm, eps})
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

// gemvPass is how many of t rows a pass over the weight takes. Each format of blocks has kernels of
// its own, for fewer numbers of rows.
func gemvPass(t int, w *Tensor) int {
	m := 1
	for m < t && m < gemvRows || m == 2 && w.Blocks != nil {
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
