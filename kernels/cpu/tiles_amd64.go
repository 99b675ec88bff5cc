package cpu

import (
	"math"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/krait-ml/krait/graph"
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
	results        [2][tileRows][runGroups][tileTokens]float32 // of both tiles of tokens with groups of runs
}

// amxPlan says what to multiply, in the order that the generator knows.
type amxPlan struct {
	k           int // terms
	n, ys       int // tokens, bytes from one's results to the next
	pairs, rows int // of tiles of weights, rows in each
	apart       int // bytes from a run to the next; packed weights have none
	next        int // bytes from a pair of weights to the next
	second, row int // bytes between tiles of tokens, and between their rows
	fetch       tileFetch
	_           [2]int // which only the assembly uses
}

// tileFetch is what packed weights fetch meanwhile: at each 32 elements some lines at each of four
// places, which are quarter bytes apart, then stride bytes on; behind what one pair fetches comes
// what the next one does. It is one line for a stride of at most 64, and 8 for others.
type tileFetch struct {
	at                      uintptr
	quarter, stride, behind int // quarter 0: nothing
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
	defer tileProducts.Put(m)
	m.of(p, c)
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

// tileProduct is the product of some rows with some tokens.
type tileProduct struct {
	tiled
	call *kernels.Call
	work *amxWork
	code tileCode
}

// tileProducts have work of whole pages, as the configuration of tiles must begin with a line of
// the cache.
var tileProducts = sync.Pool{New: func() any { return &tileProduct{work: new(amxWork), code: nativeTiles{}} }}

// of makes it one of a call.
func (m *tileProduct) of(p tiled, c *kernels.Call) {
	m.tiled, m.call = p, c
	clear(m.work.totals[:]) // which a single block leaves as they are
}

// tileCode is assembly, which tests interpret.
type tileCode interface {
	pack(w *kernels.Tensor, row, rows int, to []uint16)
	multiply(m *tileProduct, tile, tiles int, w []uint16, y []float32) (odd uint32)
	turn(from [][tileTokens]float32, y []float32, ys, n, rows int)
}

// runs multiplies rows with one or two tiles of tokens, and reads each once. The rows that fill
// tiles are as many long runs as a tile has rows.
func (m *tileProduct) runs(from, to, tile, tiles int) {
	w := &m.call.Args[1]
	for from < to {
		plan := amxPlan{k: w.Cols, rows: min(tileRows, to-from), next: 2 * w.Stride}
		groups, odd := max(1, (to-from)/tileRows), uint32(0)
		plan.apart = groups * plan.next
		rows := groups * plan.rows
		lie := w.U16[from*w.Stride : (from+rows-1)*w.Stride+w.Cols] // the assembly checks no bounds
		for first := 0; first < groups; first += plan.pairs {
			plan.pairs = min(runGroups, groups-first)
			m.prepare(tile, tiles, &plan)
			odd |= m.code.multiply(m, tile, tiles, lie[first*w.Stride:], m.work.results[0][0][0][:])
			m.turn(tile, tiles, from+first, groups, &plan)
		}
		m.mend(tile, from, rows, plan.n, odd)
		from += rows
	}
}

// turn gives tokens the results of some groups with runs of as many rows, of which the first begins
// at a row of weights.
func (m *tileProduct) turn(tile, tiles, from, run int, plan *amxPlan) {
	y := &m.call.Results[0]
	for i := range tiles {
		t := (tile + i) * tileTokens
		n := min(tileTokens, m.call.Args[0].Rows()-t)
		for r := range plan.rows {
			row := from + r*run
			m.code.turn(m.work.results[i][r][:], y.F32[t*y.Stride+row:(t+n-1)*y.Stride+row+plan.pairs], y.Stride, n, plan.pairs)
		}
	}
}

// panels multiplies rows with some tiles of tokens. What weights are packed to has no other use.
func (m *tileProduct) panels(from, to, first, last int, copies *widened) {
	w := &m.call.Args[1]
	pairs, most := (to-from+pairRows-1)/pairRows, max(1, packedBytes/(pairRows*2*m.weights*w.Cols))
	n := (pairs + most - 1) / most
	rows := (pairs + n - 1) / n * pairRows
	for ; from < to; from += rows {
		end := min(to, from+rows)
		panel := m.packed(from, end, copies)
		for tile := first; tile < last; tile += 2 {
			panel.share(address(w, end), (min(to, end+rows)-end)*w.Stride*w.DType.Bytes(), (tile-first)/2, (last-first+1)/2)
			m.panel(tile, min(2, last-tile), &panel)
		}
	}
}

// address is that of a row of weights, or of what is behind them.
func address(w *kernels.Tensor, row int) uintptr {
	if w.DType == graph.F32 {
		return uintptr(unsafe.Pointer(&w.F32[0])) + uintptr(4*row*w.Stride)
	}
	return uintptr(unsafe.Pointer(&w.U16[0])) + uintptr(2*row*w.Stride)
}

// tilePanel are rows of weights that are packed as tiles, and what is fetched meanwhile.
type tilePanel struct {
	from, rows int
	k, parts   int
	at         []uint16
	fetch      tileFetch
	fetching   int // pairs, the first ones
}

// pair is how many numbers a pair of tiles of weights is.
func (w *tilePanel) pair() int { return pairRows * w.k * w.parts }

// packed are weights in tiles.
func (m *tileProduct) packed(from, to int, copies *widened) tilePanel {
	w := &m.call.Args[1]
	p := tilePanel{from: from, rows: to - from, k: (w.Cols + tileDepth - 1) / tileDepth * tileDepth, parts: m.weights}
	copies.atLeast((p.rows+pairRows-1)/pairRows*p.pair()/2 + 16)
	p.at = unsafe.Slice((*uint16)(unsafe.Pointer(&copies.h[0])), 2*len(copies.h))
	p.at = p.at[-uintptr(unsafe.Pointer(&p.at[0]))%64/2:]
	for r := 0; r < p.rows; r += pairRows {
		m.code.pack(w, from+r, min(pairRows, p.rows-r), p.at[r/pairRows*p.pair():])
	}
	return p
}

// share lets pairs fetch what one of some turns has of some bytes. It fetches few lines at a time,
// where they are enough: products load lines meanwhile.
func (w *tilePanel) share(at uintptr, bytes, turn, turns int) {
	from, to := bytes*turn/turns, bytes*(turn+1)/turns
	pairs, steps := max(1, w.rows/pairRows), max(1, w.k/tileDepth)
	lines, stride := ((to-from)/4+63)/64, 1 // of each place
	if lines > pairs*steps {
		stride = 8
	}
	w.fetch = tileFetch{at + uintptr(from), 64 * lines, 64 * stride, 64 * stride * steps}
	w.fetching = min(pairs, (lines+stride*steps-1)/(stride*steps))
}

// tokens are the packed ones from a tile on.
func (m *tileProduct) tokens(tile int) []byte { return m.call.Scratch[tile*m.tileBytes(m.call):] }

// packedTokens are their parts.
func (m *tileProduct) packedTokens(tile int) []byte {
	return m.tokens(tile)[unsafe.Sizeof(tokenTile{}):]
}

// panel multiplies weights with two tiles of tokens, or with one twice: pairs that are alike at
// once.
func (m *tileProduct) panel(tile, tiles int, w *tilePanel) {
	y, t := &m.call.Results[0], tile*tileTokens
	for pair := 0; pair*pairRows < w.rows; {
		plan, end := amxPlan{k: w.k, rows: min(pairRows, w.rows-pair*pairRows), next: 2 * w.pair()}, w.rows/pairRows
		if pair < w.fetching && w.fetch.quarter > 0 {
			plan.fetch, end = w.fetch, min(end, w.fetching)
			plan.fetch.at += uintptr(pair * w.fetch.behind)
		}
		plan.pairs = max(1, end-pair)
		m.prepare(tile, tiles, &plan)
		from, rows := w.from+pair*pairRows, (plan.pairs-1)*pairRows+plan.rows
		out := y.F32[t*y.Stride+from : (t+plan.n-1)*y.Stride+from+rows]
		m.mend(tile, from, rows, plan.n, m.code.multiply(m, tile, tiles, w.at[pair*w.pair():], out))
		pair += plan.pairs
	}
}

// prepare completes a plan, and makes the work follow it.
func (m *tileProduct) prepare(tile, tiles int, plan *amxPlan) {
	packed := m.tokens(tile)
	plan.n = min(tiles*tileTokens, m.call.Args[0].Rows()-tile*tileTokens)
	plan.ys, plan.second = 4*m.call.Results[0].Stride, m.tileBytes(m.call)
	if plan.fetch.quarter == 0 {
		plan.fetch.at = uintptr(unsafe.Pointer(&packed[0])) // it is there
	}
	if plan.row = 4 * m.columns(m.call); tiles == 1 {
		plan.second = 0
	}
	for i := range m.work.tokens {
		m.work.tokens[i] = *(*tokenTile)(unsafe.Pointer(&packed[i*plan.second]))
	}
	m.work.configure(plan.row, plan.rows)
	m.work.plan = *plan
}

// mend computes anew what may be off: results of the odd tokens of n with rows of weights from one
// on.
func (m *tileProduct) mend(tile, from, rows, n int, odd uint32) {
	c := m.call
	for odd &= uint32(1<<n - 1); odd != 0; odd &= odd - 1 {
		i := bits.TrailingZeros32(odd)
		t := tile*tileTokens + i
		again(c.Args[0].Row(t), &c.Args[1], c.Results[0].Row(t)[:from+rows], from, m.work.tokens[i/tileTokens].least[i%tileTokens])
	}
}

// nativeTiles is the machine's.
type nativeTiles struct{}

func (nativeTiles) pack(w *kernels.Tensor, row, rows int, to []uint16) {
	at, end, packed := row*w.Stride, (row+rows-1)*w.Stride+w.Cols, (*byte)(unsafe.Pointer(&to[0]))
	if w.DType == graph.F32 { // the assembly checks no bounds
		amxTilesF32(&w.F32[at:end][0], w.Stride, w.Cols, rows, packed)
	} else {
		amxTiles(&w.U16[at:end][0], w.Stride, w.Cols, rows, packed)
	}
}

func (nativeTiles) turn(from [][tileTokens]float32, y []float32, ys, n, rows int) {
	amxTurn(&from[0][0], &y[0], ys, n, rows)
}

func (nativeTiles) multiply(m *tileProduct, tile, tiles int, w []uint16, y []float32) uint32 {
	multiply := amxPackedF32
	switch {
	case m.weights > 1:
	case m.work.plan.apart > 0:
		multiply = amxRuns[m.parts][tiles-1]
	case m.parts == 1:
		multiply = amxPacked1
	default:
		multiply = amxPacked3
	}
	return multiply(&m.work.palette, &w[0], &m.packedTokens(tile)[0], &y[0])
}

// amxRuns are the products of runs by the parts of x and the tiles of tokens.
var amxRuns = map[int][2]func(work *byte, w *uint16, x *byte, y *float32) (odd uint32){3: {amxRuns3x1, amxRuns3x2}, 1: {amxRuns1x1, amxRuns1x2}}

// configure says how large tiles are: sums of both tiles of tokens, whose rows have some bytes,
// weights, and tokens.
func (work *amxWork) configure(row, rows int) {
	work.palette = 1
	a, b := min(tileRows, rows), max(1, rows-tileRows) // the second tile is not there, or not used
	for tile, size := range [8][2]int{{a, row}, {b, row}, {a, row}, {b, row}, {a, 64}, {b, 64}, {16, row}, {16, row}} {
		work.rows[tile], work.columns[tile] = byte(size[0]), uint16(size[1])
	}
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
