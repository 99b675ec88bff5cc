package cpu

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// tileFetch is what packed weights fetch meanwhile: at each 32 elements some lines at each of four
// places, which are quarter bytes apart, then stride bytes on; behind what one pair fetches comes
// what the next one does. It is one line for a stride of at most 64, and 8 for others.
type tileFetch struct {
	at                      uintptr
	quarter, stride, behind int // quarter 0: nothing
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
