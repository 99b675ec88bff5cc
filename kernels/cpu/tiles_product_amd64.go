package cpu

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

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
	pairs, rows int // of tiles of weights, or tiles of runs, and rows in each
	apart       int // bytes from a run to the next; packed weights have none
	next        int // bytes from a pair of weights to the next
	second, row int // bytes between tiles of tokens, and between their rows
	fetch       tileFetch
	_           [2]int // which only the assembly uses
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

// giveBack keeps its memory for other calls, and nothing of this one.
func (m *tileProduct) giveBack() {
	m.call = nil
	tileProducts.Put(m)
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

// tokens are the packed ones from a tile on.
func (m *tileProduct) tokens(tile int) []byte { return m.call.Scratch[tile*m.tileBytes(m.call):] }

// packedTokens are their parts.
func (m *tileProduct) packedTokens(tile int) []byte {
	return m.tokens(tile)[unsafe.Sizeof(tokenTile{}):]
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
