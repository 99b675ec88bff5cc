package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/krait-ml/krait/kernels"
)

func init() {
	long := tiled{parts: 3, weights: 3}
	for math, t := range map[string]tiled{"f32": {3, 1}, "bf16": {1, 1}} {
		wideProducts[math]["amx"] = []Wide{{t.kernel(), longBF16, true}, {long.kernel(), longF32, false}}
	}
}

// tiled is matmul through tiles, for weights in bf16, and for those in f32 with whole blocks of
// tokens; others stay with AVX-512. An f32 is the sum of three bf16, which are multiplied one by
// one and added in f32.
//
// Tiles take numbers below the normal ones as 0 and leave no such sums. So that nothing of weight
// is lost, a token is scaled to [2^100, 2^101): what is lost of a sum then is less than 2^21 (a
// number below 2^-126 times any weight, or a weight below it times any number, for each of up to
// 2^17 products), and where a result is below 2^60, or not finite, it is computed anew in float64.
type tiled struct {
	parts   int // of x: 3, or 1: x is rounded to bf16
	weights int // parts of them: 3 for f32, 1 for bf16
}

const (
	tileTokens  = 16
	tileDepth   = 32 // elements of a row of weights
	tileRows    = 16 // of weights
	pairRows    = 2 * tileRows
	runGroups   = 16        // of a row of each run, at most, whose results are left together
	fewRows     = 64        // tiles of weights, that are too few to cut the work, so that tokens are cut, too
	packedBytes = 512 << 10 // of packed weights
)

// tokenTile is what comes before the parts of a tile of tokens.
type tokenTile struct {
	unscale [tileTokens]float32 // the exponent that takes the scale back
	least   [tileTokens]uint32  // bits of the least result that is taken as it is
}

func (p tiled) kernel() kernels.Kernel {
	return kernels.Kernel{Units: p.units, Run: p.run, Scratch: p.scratch, Before: &kernels.Kernel{Units: p.tiles, Run: p.packTiles}}
}

// tiles is the number of tiles that the tokens make.
func (p tiled) tiles(c *kernels.Call) int {
	return (c.Args[0].Rows() + tileTokens - 1) / tileTokens
}

// tileBytes is the size of a packed tile of tokens.
func (p tiled) tileBytes(c *kernels.Call) int {
	steps := (c.Args[1].Cols + tileDepth - 1) / tileDepth
	return int(unsafe.Sizeof(tokenTile{})) + p.parts*steps*tileTokens*tileDepth*2
}

// columns is how many tokens packed tiles have room for.
func (p tiled) columns(c *kernels.Call) int {
	if p.weights > 1 {
		return tileTokens
	}
	return min(tileTokens, c.Args[0].Rows())
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
		n, columns := tokensOf(c, i), p.columns(c)
		for t := range tileTokens {
			rows[t] = min(t, n-1) * x.Stride * 4
			scale[t], head.unscale[t], head.least[t] = 0, 0, 0
			if t < n {
				e, least := scaled(amxLargest(&x.Row(i*tileTokens + t)[0], k))
				scale[t], head.unscale[t], head.least[t] = float32(e), float32(-e), least
			}
		}
		switch first := &x.Row(i * tileTokens)[0]; {
		case p.parts == 3 && columns == 1:
			amxPackOne3(first, scale[0], k, &to[0])
		case p.parts == 3:
			amxPack3(first, &rows, &scale, k, &to[0], columns)
		case columns == 1:
			amxPackOne1(first, scale[0], k, &to[0])
		default:
			amxPack1(first, &rows, &scale, k, &to[0], columns)
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

// grid is into how many tiles of weights, and parts of the pairs of tiles of tokens, work is cut.
func (p tiled) grid(c *kernels.Call) (rows, parts int) {
	rows = (c.Args[1].Rows() + tileRows - 1) / tileRows
	return rows, max(1, min(p.tiles(c)/2, fewRows/max(1, rows)))
}

func (p tiled) units(c *kernels.Call) int {
	rows, parts := p.grid(c)
	return rows * parts
}

// run is x wᵀ for units lo to hi: a panel of weights, which stays in a core's cache, is
// multiplied with two tiles of tokens after the other two. Two have no use for a panel.
func (p tiled) run(c *kernels.Call, lo, hi int) {
	m := tileProducts.Get().(*tileProduct)
	m.of(p, c)
	defer m.giveBack()
	var copies widened
	rows, parts := p.grid(c)
	for lo < hi {
		part := lo / rows
		end := min(hi, (part+1)*rows)
		first, last := p.firstTile(c, part, parts), p.firstTile(c, part+1, parts)
		from, to := (lo-part*rows)*tileRows, min((end-part*rows)*tileRows, c.Args[1].Rows())
		if last-first <= 2 && p.weights == 1 {
			m.runs(from, to, first, last-first)
		} else {
			m.panels(from, to, first, last, &copies)
		}
		lo = end
	}
	copies.giveBack()
}

// firstTile is the first tile of tokens of a part, which is not the second of two.
func (p tiled) firstTile(c *kernels.Call, part, parts int) int {
	pairs := (p.tiles(c) + 1) / 2
	return min(p.tiles(c), part*pairs/parts*2)
}

// again computes the results from one on that are not finite, or less than the least.
func again(x []float32, w *kernels.Tensor, y []float32, from int, least uint32) {
	for n := from; n < len(y); n++ {
		if size := math.Float32bits(y[n]) &^ (1 << 31); size < least || size >= infinite {
			y[n] = dotFloat64(x, w, n)
		}
	}
}

// dotFloat64 sums products with a row of weights in float64.
func dotFloat64(x []float32, w *kernels.Tensor, row int) float32 {
	var sums [2]float64
	var buf [256]float32
	for at := 0; at < len(x); at += len(buf) {
		part := x[at:min(len(x), at+len(buf))]
		w.Read(buf[:len(part)], row*w.Stride+at)
		for i, v := range part {
			sums[i%2] += float64(v) * float64(buf[i])
		}
	}
	return float32(sums[0] + sums[1])
}
