package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var (
	_ = kernels.Register(amx, kernels.Set{"matmul": tiled{3, shortDepth}.kernel()})
	_ = kernels.Register(amxRounding, kernels.Set{"matmul": tiled{1, shortDepth}.kernel()})
)

// tiled is matmul through tiles, for weights in bf16: others stay with AVX-512, since
// those in f32 would take six products, and three times their memory. An f32
// is the sum of three bf16, which are multiplied one by one and added in f32, those of
// the upper parts by themselves.
//
// Tiles take numbers below the normal ones as 0 and leave no such sums. So that nothing
// of weight is lost, a token is scaled to [2^100, 2^101): what is lost of a sum then is
// less than 2^21 (a number below 2^-126 times any weight, or a weight below it times any
// number, for each of up to 2^17 products), and where a result is below 2^60, or not
// finite, it is computed anew in float64.
type tiled struct {
	parts int // 3, or 1: x is rounded to bf16, and then there is one product
	depth int // terms that sums have at least; others stay with AVX-512
}

const (
	tileTokens = 16
	tileDepth  = 32 // elements of a row of weights
	tileRows   = 16 // of weights
	pairRows   = 2 * tileRows
	fewTiles   = 64 // of weights are too few to cut the work, so that tokens are cut, too
	tilePanel  = 512 << 10
)

// tokenTile is what comes before the parts of a tile of tokens.
type tokenTile struct {
	unscale [tileTokens]float32 // the exponent that takes the scale back
	least   [tileTokens]uint32  // bits of the least result that is taken as it is
}

// amxWork is the memory of a multiplication, in the order that its generator knows.
type amxWork struct {
	palette, start byte
	_              [14]byte
	columns        [16]uint16 // bytes of each tile's rows
	rows           [16]byte
	tokens         [2]tokenTile
	sums, totals   [4][tileRows][tileTokens]float32 // of a block, and of those before it
	tail           [pairRows][tileDepth]uint16
	_              [64]byte // to align it
}

func (p tiled) kernel() kernels.Kernel {
	return kernels.Kernel{Units: p.units, Run: p.run, Scratch: p.scratch, Before: &kernels.Kernel{Units: p.tiles, Run: p.packTiles}}
}

// serves reports whether a product is made through tiles.
func (p tiled) serves(c *kernels.Call) bool {
	return c.Args[1].DType == graph.BF16 && c.Args[1].Cols >= max(1, p.depth)
}

// tiles is the number of tiles that the tokens make.
func (p tiled) tiles(c *kernels.Call) int {
	if !p.serves(c) {
		return 0
	}
	return (c.Args[0].Rows() + tileTokens - 1) / tileTokens
}

// tileBytes is the size of a packed tile of tokens.
func (p tiled) tileBytes(c *kernels.Call) int {
	steps := (c.Args[1].Cols + tileDepth - 1) / tileDepth
	return int(unsafe.Sizeof(tokenTile{})) + p.parts*steps*tileTokens*tileDepth*2
}

func (p tiled) scratch(c *kernels.Call) int { return p.tiles(c) * p.tileBytes(c) }

// tokensOf is the number of tokens in a tile.
func tokensOf(c *kernels.Call, tile int) int {
	return min(tileTokens, c.Args[0].Rows()-tile*tileTokens)
}

// packTiles takes tiles of tokens apart.
func (p tiled) packTiles(c *kernels.Call, lo, hi int) {
	x, k := &c.Args[0], c.Args[1].Cols
	var scale [tileTokens]float32
	var rows [tileTokens]int
	for i := lo; i < hi; i++ {
		to := c.Scratch[i*p.tileBytes(c) : (i+1)*p.tileBytes(c)]
		head := (*tokenTile)(unsafe.Pointer(&to[0]))
		to = to[unsafe.Sizeof(*head):]
		n := tokensOf(c, i)
		for t := range tileTokens {
			rows[t] = min(t, n-1) * x.Stride * 4
			scale[t], head.unscale[t], head.least[t] = 0, 0, 0
			if t < n {
				e, least := scaled(amxLargest(&x.Row(i*tileTokens + t)[0], k))
				scale[t], head.unscale[t], head.least[t] = float32(e), float32(-e), least
			}
		}
		switch first := &x.Row(i * tileTokens)[0]; {
		case p.parts == 3 && n == 1:
			amxPackOne3(first, scale[0], k, &to[0])
		case p.parts == 3:
			amxPack3(first, &rows, &scale, k, &to[0], n)
		case n == 1:
			amxPackOne1(first, scale[0], k, &to[0])
		default:
			amxPack1(first, &rows, &scale, k, &to[0], n)
		}
	}
}

const infinite = 0x7f800000 // the bits of the infinite f32

// scaled is the exponent that takes a token whose largest element has these bits to 2^100,
// and the bits of the least result that it then has exactly enough.
func scaled(largest uint32) (scale int, least uint32) {
	exponent := int(largest>>23) - 127
	switch {
	case largest == 0:
		return 0, 0
	case largest >= infinite:
		return 0, infinite
	case largest < 1<<23:
		exponent = bits.Len32(largest) - 150
	}
	return 100 - exponent, math.Float32bits(float32(math.Ldexp(1, exponent-40)))
}

// grid is into how many tiles of weights, and parts of the pairs of tiles of tokens, work
// is cut.
func (p tiled) grid(c *kernels.Call) (rows, parts int) {
	rows = (c.Args[1].Rows() + tileRows - 1) / tileRows
	return rows, max(1, min(p.tiles(c)/2, fewTiles/max(1, rows)))
}

func (p tiled) units(c *kernels.Call) int {
	if !p.serves(c) {
		return avx512["matmul"].Units(c)
	}
	rows, parts := p.grid(c)
	return rows * parts
}

// run is x wᵀ for units lo to hi: a panel of weights, which stays in a core's cache, is
// multiplied with two tiles of tokens after the other two.
func (p tiled) run(c *kernels.Call, lo, hi int) {
	if !p.serves(c) {
		avx512["matmul"].Run(c, lo, hi)
		return
	}
	var memory [unsafe.Sizeof(amxWork{})]byte
	m := tileProduct{tiled: p, call: c, work: (*amxWork)(unsafe.Add(unsafe.Pointer(&memory), -uintptr(unsafe.Pointer(&memory))&63))}
	rows, parts := p.grid(c)
	for lo < hi {
		part := lo / rows
		end := min(hi, (part+1)*rows)
		first, last := p.pairs(c, part, parts), p.pairs(c, part+1, parts)
		m.rows((lo-part*rows)*tileRows, min((end-part*rows)*tileRows, c.Args[1].Rows()), first, last)
		lo = end
	}
}

// pairs is the first tile of tokens of a part, which is not the second of two.
func (p tiled) pairs(c *kernels.Call, part, parts int) int {
	pairs := (p.tiles(c) + 1) / 2
	return min(p.tiles(c), part*pairs/parts*2)
}

// tileProduct is the product of some rows with some tokens.
type tileProduct struct {
	tiled
	call *kernels.Call
	work *amxWork
}

// rows multiplies those from one on with some tiles of tokens.
func (m *tileProduct) rows(from, to, first, last int) {
	panel := max(1, tilePanel/(pairRows*2*m.call.Args[1].Cols)) * pairRows
	for ; from < to; from += panel {
		end := min(to, from+panel)
		for tile := first; tile < last; tile += 2 {
			fetch := 0
			if tile == first {
				fetch = (min(end+pairRows, to) - from - 1) / pairRows // pairs that have a next one
			}
			m.panel(tile, min(2, last-tile), from, end, fetch)
		}
	}
}

// panel computes the columns from one on of one or two tiles of tokens: those in pairs of
// tiles of weights, and what is left.
func (m *tileProduct) panel(tile, tiles, from, to, fetch int) {
	whole := from + (to-from)/pairRows*pairRows
	if from < whole {
		m.columns(tile, tiles, from, whole, pairRows, fetch)
	}
	if whole < to {
		m.columns(tile, tiles, whole, to, to-whole, 0)
	}
}

// columns computes those from one on, rows at a time.
func (m *tileProduct) columns(tile, tiles, from, to, rows, fetch int) {
	c, size := m.call, m.tileBytes(m.call)
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	packed := c.Scratch[tile*size : (tile+tiles)*size]
	for i := range tiles {
		m.work.tokens[i] = *(*tokenTile)(unsafe.Pointer(&packed[i*size]))
	}
	packed = packed[unsafe.Sizeof(tokenTile{}):]
	t := tile * tileTokens
	n := min(tiles*tileTokens, x.Rows()-t)
	m.work.configure(n, rows)
	weights := w.U16[from*w.Stride : (to-1)*w.Stride+w.Cols] // the assembly checks no bounds
	out := y.F32[t*y.Stride+from : (t+n-1)*y.Stride+to]
	odd := m.multiply(tiles, &weights[0], w.Stride, &packed[0], size, n, &out[0], y.Stride, w.Cols, (to-from)/rows, rows, fetch)
	for odd &= uint32(1<<n - 1); odd != 0; odd &= odd - 1 {
		i := bits.TrailingZeros32(odd)
		again(x.Row(t+i), w, y.Row(t + i)[:to], from, m.work.tokens[i/tileTokens].least[i%tileTokens])
	}
}

// multiply calls the assembly. What is called by a variable would let the work's memory escape.
func (m *tileProduct) multiply(tiles int, w *uint16, ws int, x *byte, second, n int, y *float32, ys, k, pairs, rows, fetch int) (odd uint32) {
	work := &m.work.palette
	switch {
	case m.parts == 1 && tiles == 1:
		return amxMultiply1x1(work, w, ws, x, second, n, y, ys, k, pairs, rows, fetch)
	case m.parts == 1:
		return amxMultiply1x2(work, w, ws, x, second, n, y, ys, k, pairs, rows, fetch)
	case tiles == 1:
		return amxMultiply3x1(work, w, ws, x, second, n, y, ys, k, pairs, rows, fetch)
	}
	return amxMultiply3x2(work, w, ws, x, second, n, y, ys, k, pairs, rows, fetch)
}

// configure says how large tiles are: sums of both tiles of tokens, weights, and tokens. Of
// one, the second is like it.
func (work *amxWork) configure(tokens, rows int) {
	work.palette = 1
	a, b := min(tileRows, rows), max(1, rows-tileRows) // the second tile is not there, or not used
	first, second := min(tileTokens, tokens), tokens
	if tokens > tileTokens {
		second -= tileTokens
	}
	for tile, size := range [8][2]int{{a, first}, {b, first}, {a, second}, {b, second}, {a, 16}, {b, 16}, {16, first}, {16, second}} {
		work.rows[tile], work.columns[tile] = byte(size[0]), uint16(4*size[1])
	}
}

// again computes the results from one on that are not finite, or less than the least.
func again(x []float32, w *kernels.Tensor, y []float32, from int, least uint32) {
	for n := from; n < len(y); n++ {
		if size := math.Float32bits(y[n]) &^ (1 << 31); size < least || size >= infinite {
			y[n] = dotBF16(x, w.U16[n*w.Stride:][:len(x)])
		}
	}
}

// dotBF16 sums in float64.
func dotBF16(x []float32, w []uint16) float32 {
	var a, b float64
	for ; len(x) > 1; x, w = x[2:], w[2:] {
		a += float64(x[0]) * float64(math.Float32frombits(uint32(w[0])<<16))
		b += float64(x[1]) * float64(math.Float32frombits(uint32(w[1])<<16))
	}
	for i, v := range x {
		a += float64(v) * float64(math.Float32frombits(uint32(w[i])<<16))
	}
	return float32(a + b)
}
