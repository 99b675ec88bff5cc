package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/krait-ml/krait/kernels"
)

func init() {
	for math, t := range map[string]tiled{"f32": {3}, "bf16": {1}} {
		w := Wide{Kernel: t.kernel(), Serves: longBF16}
		wideProducts[math]["amx"] = w
		w.All = true
		wideProducts[math]["amx_all"] = w
	}
}

// tiled is matmul through tiles, for weights in bf16: others stay with AVX-512, since those in f32
// would take six products, and three times their memory. An f32 is the sum of three bf16, which are
// multiplied one by one and added in f32, those of the upper parts by themselves.
//
// Tiles take numbers below the normal ones as 0 and leave no such sums. So that nothing of weight
// is lost, a token is scaled to [2^100, 2^101): what is lost of a sum then is less than 2^21 (a
// number below 2^-126 times any weight, or a weight below it times any number, for each of up to
// 2^17 products), and where a result is below 2^60, or not finite, it is computed anew in float64.
type tiled struct {
	parts int // 3, or 1: x is rounded to bf16, and then there is one product
}

const (
	tileTokens = 16
	tileDepth  = 32 // elements of a row of weights
	tileRows   = 16 // of weights
	pairRows   = 2 * tileRows
	fewRows    = 64 // tiles of weights, that are too few to cut the work, so that tokens are cut, too
	fewTiles   = 4  // of tokens, for which weights are read as they lie
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
	plan           amxPlan
	_              [64]byte // to align it
}

// amxPlan says what to multiply, in the order that the generator knows.
type amxPlan struct {
	k                            int // terms
	n, ys                        int // tokens, bytes from one's results to the next
	pairs, rows                  int // of tiles of weights, rows in each
	between, half, advance, next int // bytes of weights: to the next row, tile, 32 elements, pair
	second                       int // bytes between tiles of tokens
	fetch                        tileFetch
	near                         int    // 1: nothing has fetched these weights
	_                            [2]int // which only the assembly uses
}

// tileFetch is what is fetched meanwhile: at each 32 elements some lines at each of four places,
// which are apart bytes apart, then stride bytes on; behind what one pair fetches comes what the
// next one does. Copied weights take one line for a stride of at most 64, and others 8.
type tileFetch struct {
	at                    uintptr
	apart, stride, behind int // apart 0: nothing
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
// multiplied with two tiles of tokens after the other two.
func (p tiled) run(c *kernels.Call, lo, hi int) {
	var memory [unsafe.Sizeof(amxWork{})]byte
	m := tileProduct{p, c, (*amxWork)(unsafe.Add(unsafe.Pointer(&memory), -uintptr(unsafe.Pointer(&memory))&63))}
	var copies widened
	rows, parts := p.grid(c)
	for lo < hi {
		part := lo / rows
		end := min(hi, (part+1)*rows)
		first, last := p.firstTile(c, part, parts), p.firstTile(c, part+1, parts)
		m.rows((lo-part*rows)*tileRows, min((end-part*rows)*tileRows, c.Args[1].Rows()), first, last, &copies)
		lo = end
	}
	copies.giveBack()
}

// firstTile is the first tile of tokens of a part, which is not the second of two.
func (p tiled) firstTile(c *kernels.Call, part, parts int) int {
	pairs := (p.tiles(c) + 1) / 2
	return min(p.tiles(c), part*pairs/parts*2)
}

// tileProduct is the product of some rows with some tokens.
type tileProduct struct {
	tiled
	call *kernels.Call
	work *amxWork
}

// rows multiplies those from one on with some tiles of tokens. What weights are copied to
// has no other use.
func (m *tileProduct) rows(from, to, first, last int, copies *widened) {
	w := &m.call.Args[1]
	pairs, most := (to-from+pairRows-1)/pairRows, max(1, tilePanel/(pairRows*2*w.Cols))
	panels := (pairs + most - 1) / most
	panel := (pairs + panels - 1) / panels * pairRows
	copied := last-first > fewTiles && (address(w, 0)|uintptr(2*w.Stride))%64 != 0
	amxFetch(&w.U16[from*w.Stride], w.Stride, min(pairRows, to-from))
	for near := !copied; from < to; from, near = from+panel, false {
		end := min(to, from+panel)
		var part tileWeights
		if copied {
			part = m.copied(from, end, copies)
		} else {
			part = m.lying(from, end, (to-from-1)/pairRows)
		}
		part.near = near
		for tile := first; tile < last; tile += 2 {
			if copied {
				part.share(address(w, end), (min(to, end+panel)-end)*w.Stride*2, (tile-first)/2, (last-first+1)/2)
			}
			m.panel(tile, min(2, last-tile), &part)
			part.near, part.fetching = false, 0
		}
	}
}

// address is that of a row of weights, or of what is behind them.
func address(w *kernels.Tensor, row int) uintptr {
	return uintptr(unsafe.Pointer(&w.U16[0])) + uintptr(2*row*w.Stride)
}

// tileWeights are rows of weights for tiles: where they are, and what is fetched meanwhile.
type tileWeights struct {
	from, rows, k                int
	at                           []uint16
	between, half, advance, next int // see amxPlan
	fetch                        tileFetch
	fetching                     int  // pairs, the first ones
	near                         bool // nothing has fetched the first pair
}

// lying are weights as they lie in memory. The next one is fetched a number of pairs ahead.
func (m *tileProduct) lying(from, to, fetching int) tileWeights {
	w := &m.call.Args[1]
	ws := 2 * w.Stride
	return tileWeights{
		from: from, rows: to - from, k: w.Cols,
		at:      w.U16[from*w.Stride : (to-1)*w.Stride+w.Cols], // the assembly checks no bounds
		between: ws, half: tileRows * ws, advance: 2 * tileDepth, next: pairRows * ws,
		fetch:    tileFetch{address(w, from) + uintptr(pairRows*ws), pairRows / 4 * ws, 512, pairRows * ws},
		fetching: fetching,
	}
}

// copied are weights in tiles.
func (m *tileProduct) copied(from, to int, copies *widened) tileWeights {
	w := &m.call.Args[1]
	const step = pairRows * tileDepth
	k := (w.Cols + tileDepth - 1) / tileDepth * tileDepth
	copies.atLeast((to-from+pairRows-1)/pairRows*pairRows*k/2 + 16)
	at := unsafe.Slice((*uint16)(unsafe.Pointer(&copies.h[0])), 2*len(copies.h))
	at = at[-uintptr(unsafe.Pointer(&at[0]))%64/2:]
	for r := from; r < to; r += pairRows {
		n := min(pairRows, to-r)
		_ = w.U16[(r+n-1)*w.Stride+w.Cols-1]
		amxTiles(&w.U16[r*w.Stride], w.Stride, w.Cols, n, (*byte)(unsafe.Pointer(&at[(r-from)*k])))
	}
	return tileWeights{
		from: from, rows: to - from, k: k, at: at,
		between: 2 * tileDepth, half: step, advance: 2 * step, next: pairRows * 2 * k,
	}
}

// share lets pairs fetch what one of some turns has of some bytes. It fetches few lines at a time,
// where they are enough: products load lines meanwhile.
func (w *tileWeights) share(at uintptr, bytes, turn, turns int) {
	from, to := bytes*turn/turns, bytes*(turn+1)/turns
	pairs, steps := max(1, w.rows/pairRows), max(1, w.k/tileDepth)
	lines, stride := ((to-from)/4+63)/64, 1 // of each place
	if lines > pairs*steps {
		stride = 8
	}
	w.fetch = tileFetch{at + uintptr(from), 64 * lines, 64 * stride, 64 * stride * steps}
	w.fetching = min(pairs, (lines+stride*steps-1)/(stride*steps))
}

// packed are tokens from a tile on.
func (m *tileProduct) packed(tile int) []byte { return m.call.Scratch[tile*m.tileBytes(m.call):] }

// panel multiplies weights with one or two tiles of tokens: pairs that are alike at once, and
// what is left.
func (m *tileProduct) panel(tile, tiles int, w *tileWeights) {
	whole := w.rows / pairRows
	for pair := 0; pair*pairRows < w.rows; {
		plan, end := amxPlan{rows: min(pairRows, w.rows-pair*pairRows)}, whole
		if pair < w.fetching && w.fetch.apart > 0 {
			plan.fetch, end = w.fetch, min(end, w.fetching)
			plan.fetch.at += uintptr(pair * w.fetch.behind)
		}
		if w.near && pair == 0 {
			plan.near, end = 1, 1
		}
		plan.pairs = max(1, end-pair)
		m.pairs(tile, tiles, w, pair, &plan)
		pair += plan.pairs
	}
}

// pairs multiplies those from one on.
func (m *tileProduct) pairs(tile, tiles int, w *tileWeights, pair int, plan *amxPlan) {
	out := m.prepare(tile, tiles, w, pair, plan)
	m.mend(tile, w.from+pair*pairRows, plan, m.multiply(tiles, &w.at[pair*w.next/2], &m.packed(tile)[unsafe.Sizeof(tokenTile{})], &out[0]))
}

// prepare completes the plan of some pairs, and returns the memory of their results.
func (m *tileProduct) prepare(tile, tiles int, w *tileWeights, pair int, plan *amxPlan) []float32 {
	c := m.call
	x, y, t, packed := &c.Args[0], &c.Results[0], tile*tileTokens, m.packed(tile)
	n := min(tiles*tileTokens, x.Rows()-t)
	plan.k, plan.n, plan.ys, plan.second = w.k, n, 4*y.Stride, m.tileBytes(c)
	plan.between, plan.half, plan.advance, plan.next = w.between, w.half, w.advance, w.next
	if plan.fetch.apart == 0 {
		plan.fetch.at = uintptr(unsafe.Pointer(&packed[0])) // it is there
	}
	for i := range tiles {
		m.work.tokens[i] = *(*tokenTile)(unsafe.Pointer(&packed[i*plan.second]))
	}
	m.work.configure(n, plan.rows)
	m.work.plan = *plan
	from := w.from + pair*pairRows
	return y.F32[t*y.Stride+from : (t+n-1)*y.Stride+from+plan.columns()]
}

// columns is how many rows of weights the plan has.
func (p *amxPlan) columns() int { return (p.pairs-1)*pairRows + p.rows }

// mend computes anew what may be off: results of the odd tokens, from a column on.
func (m *tileProduct) mend(tile, from int, plan *amxPlan, odd uint32) {
	c := m.call
	for odd &= uint32(1<<plan.n - 1); odd != 0; odd &= odd - 1 {
		i := bits.TrailingZeros32(odd)
		t := tile*tileTokens + i
		again(c.Args[0].Row(t), &c.Args[1], c.Results[0].Row(t)[:from+plan.columns()], from, m.work.tokens[i/tileTokens].least[i%tileTokens])
	}
}

// multiply calls the assembly. A call by a variable would let the work escape.
func (m *tileProduct) multiply(tiles int, w *uint16, x *byte, y *float32) (odd uint32) {
	work := &m.work.palette
	switch {
	case m.parts == 1 && tiles == 1:
		return amxMultiply1x1(work, w, x, y)
	case m.parts == 1:
		return amxMultiply1x2(work, w, x, y)
	case tiles == 1:
		return amxMultiply3x1(work, w, x, y)
	}
	return amxMultiply3x2(work, w, x, y)
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
