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
	pairRows   = 32 // rows of weights: two tiles
	fewPairs   = 32 // are too few to cut the work, so that tokens are cut, too
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
	token          tokenTile
	sums           [4][tileTokens][16]float32
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

// grid is into how many pairs of rows of weights, and parts of the tiles, work is cut.
func (p tiled) grid(c *kernels.Call) (pairs, parts int) {
	pairs = (c.Args[1].Rows() + pairRows - 1) / pairRows
	return pairs, max(1, min(p.tiles(c), fewPairs/max(1, pairs)))
}

func (p tiled) units(c *kernels.Call) int {
	if !p.serves(c) {
		return avx512["matmul"].Units(c)
	}
	pairs, parts := p.grid(c)
	return pairs * parts
}

// run is x wᵀ for units lo to hi: a panel of weights, which stays in a core's cache, is
// multiplied with one tile of tokens after the other.
func (p tiled) run(c *kernels.Call, lo, hi int) {
	if !p.serves(c) {
		avx512["matmul"].Run(c, lo, hi)
		return
	}
	var memory [unsafe.Sizeof(amxWork{})]byte
	work := (*amxWork)(unsafe.Add(unsafe.Pointer(&memory), -uintptr(unsafe.Pointer(&memory))&63))
	pairs, parts := p.grid(c)
	panel := max(1, tilePanel/(pairRows*2*c.Args[1].Cols))
	for lo < hi {
		part := lo / pairs
		end := min(lo+panel, hi, (part+1)*pairs)
		first, last := part*p.tiles(c)/parts, (part+1)*p.tiles(c)/parts
		for tile := first; tile < last; tile++ {
			p.panel(c, work, tile, (lo-part*pairs)*pairRows, (end-part*pairs)*pairRows, tile == first)
		}
		lo = end
	}
}

// panel computes the columns from to to, of which the last may not be there, of a tile.
func (p tiled) panel(c *kernels.Call, work *amxWork, tile, from, to int, ahead bool) {
	to = min(to, c.Args[1].Rows())
	whole := from + (to-from)/pairRows*pairRows
	if from < whole {
		p.columns(c, work, tile, from, whole, pairRows, ahead)
	}
	if whole < to {
		p.columns(c, work, tile, whole, to, to-whole, false)
	}
}

// columns computes those from to to, rows at a time.
func (p tiled) columns(c *kernels.Call, work *amxWork, tile, from, to, rows int, ahead bool) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	packed := c.Scratch[tile*p.tileBytes(c) : (tile+1)*p.tileBytes(c)]
	n, t := tokensOf(c, tile), tile*tileTokens
	work.configure(n, rows)
	work.token = *(*tokenTile)(unsafe.Pointer(&packed[0]))
	packed = packed[unsafe.Sizeof(tokenTile{}):]
	weights := w.U16[from*w.Stride : (to-1)*w.Stride+w.Cols] // the assembly checks no bounds
	out := y.F32[t*y.Stride+from : (t+n-1)*y.Stride+to]
	var odd uint32
	if pairs := (to - from) / rows; p.parts == 3 {
		odd = amxMultiply3(&work.palette, &weights[0], w.Stride, &packed[0], n, &out[0], y.Stride, w.Cols, pairs, rows, ahead)
	} else {
		odd = amxMultiply1(&work.palette, &weights[0], w.Stride, &packed[0], n, &out[0], y.Stride, w.Cols, pairs, rows, ahead)
	}
	for odd &= 1<<n - 1; odd != 0; odd &= odd - 1 {
		i := bits.TrailingZeros32(odd)
		again(x.Row(t+i), w, y.Row(t + i)[:to], from, work.token.least[i])
	}
}

// configure says how large tiles are.
func (work *amxWork) configure(tokens, rows int) {
	work.palette = 1
	first, second := min(16, rows), max(1, rows-16) // the second tile is not there, or not used
	for tile, r := range [8]int{first, first, second, second, first, second, 16, 16} {
		work.rows[tile], work.columns[tile] = byte(r), uint16(4*tokens)
	}
	work.columns[4], work.columns[5] = 64, 64
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
