//go:build amd64 || arm64

package cpu

import (
	"sync"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// shortProducts are products whose sums are in float64, see kernels.ShortDepth, by the format of
// the weight. Those of a format differ in how many tokens they take, most first, and not
// in the order of a sum.
type shortProducts struct {
	lanes     int // of float64
	pack      func(to *float64, from *float32, n, apart int)
	panel     func(w *float32, x *float64, y *float32, ys, k, groups int) // nil: there is none
	f32       []shortProduct[float32]
	bf16, f16 []shortProduct[uint16]
}

// shortProduct multiplies matmulCols rows of weights with a row of x, or with several that
// are packed; see the generator in gen.
type shortProduct[E float32 | uint16] struct {
	tokens int
	one    func(w *E, ws int, x *float32, y *float32, ys, k int)
	many   func(w *E, ws int, x *float64, y *float32, ys, k int)
}

// matmul is x wᵀ, cut as the plain one is.
func (p *shortProducts) matmul(c *kernels.Call, lo, hi int) {
	switch w := &c.Args[1]; w.DType {
	case graph.F32:
		multiplyShort(p, c, w.F32, p.f32, lo, hi)
	case graph.BF16:
		multiplyShort(p, c, w.U16, p.bf16, lo, hi)
	case graph.F16:
		multiplyShort(p, c, w.U16, p.f16, lo, hi)
	default:
		panic("BUG: matmul with a weight in " + w.DType.String())
	}
}

// panelBytes of weights stay in a core's cache while all tokens go past them.
const panelBytes = 256 << 10

const (
	shortTokens = 6 // at most, that are packed together
	shortPanels = 8 // tokens that are worth panels
)

// packedShort has memory for packed tokens.
var packedShort = sync.Pool{New: func() any { return new([shortTokens * kernels.ShortDepth]float64) }}

// multiplyShort computes units lo to hi: for a panel of them, a few tokens after the other.
func multiplyShort[E float32 | uint16](s *shortProducts, c *kernels.Call, w []E, ps []shortProduct[E], lo, hi int) {
	x, weight := &c.Args[0], &c.Args[1]
	if weight.Cols == 0 {
		shortMatmul(c, lo, hi)
		return
	}
	if s.panel != nil && x.Rows() >= shortPanels {
		s.inPanels(c, lo*matmulCols, min(hi*matmulCols, weight.Rows()))
		return
	}
	packed := packedShort.Get().(*[shortTokens * kernels.ShortDepth]float64)
	defer packedShort.Put(packed)
	units := max(1, panelBytes/(matmulCols*weight.Cols*int(unsafe.Sizeof(w[0]))))
	for ; lo < hi; lo += units {
		for t := 0; t < x.Rows(); {
			i := 0
			for ps[i].tokens > x.Rows()-t {
				i++
			}
			if ps[i].tokens > 1 {
				s.packTokens(packed[:], x, weight.Cols, t, ps[i].tokens)
			}
			for u := lo; u < min(lo+units, hi); u++ {
				ps[i].unit(c, w, packed[:], u*matmulCols, t)
			}
			t += ps[i].tokens
		}
	}
}

// rows is how many rows of weights a group of a panel has.
func (s *shortProducts) rows() int { return 2 * s.lanes }

// inPanels computes columns of the result, from one to before another.
func (s *shortProducts) inPanels(c *kernels.Call, from, to int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	packed := packedShort.Get().(*[shortTokens * kernels.ShortDepth]float64)
	defer packedShort.Put(packed)
	rows := s.rows()
	most := min(panelBytes/4/w.Cols, to-from+rows) / rows * rows
	buf := borrow(most*w.Cols + rows*max(w.Cols, shortTokens))
	defer buf.giveBack()
	panel, rest := buf.h[:most*w.Cols], buf.h[most*w.Cols:]
	for ; from < to; from += most {
		n := min(most, to-from)
		for r := 0; r < n; r += rows {
			s.packRows(panel[r*w.Cols:], w, from+r, min(rows, n-r), rest)
		}
		for t := 0; t < x.Rows(); t += shortTokens {
			tokens := min(shortTokens, x.Rows()-t)
			for i := range tokens {
				for j, v := range x.F32[(t+i)*x.Stride:][:w.Cols] {
					packed[j*shortTokens+i] = float64(v)
				}
			}
			s.pass(panel, packed[:], matrix{y.F32[t*y.Stride+from:], y.Stride, 1}, tokens, n, w.Cols, rest)
		}
	}
}

// packRows packs n rows of weights from row r on: an element of each, and so on.
func (s *shortProducts) packRows(to []float32, w *kernels.Tensor, r, n int, rest []float32) {
	rows := matrix{rest, w.Cols, 1}
	if w.DType == graph.F32 {
		rows = matrix{w.F32[r*w.Stride:], w.Stride, 1}
	} else {
		readRows(w, rows, r*w.Stride, n, w.Cols)
	}
	transpose(matrix{to, s.rows(), 1}, rows, n, w.Cols)
}

// pass multiplies a panel of n rows with packed tokens. Partial groups go through a tile.
func (s *shortProducts) pass(panel []float32, packed []float64, y matrix, tokens, n, k int, tile []float32) {
	r, rows := 0, s.rows()
	if whole := n / rows; tokens == shortTokens && whole > 0 {
		r = whole * rows
		_ = y.at[(tokens-1)*y.row+r-1] // the assembly checks no bounds
		s.panel(&panel[0], &packed[0], &y.at[0], y.row, k, whole)
	}
	tile = tile[:shortTokens*rows]
	for ; r < n; r += rows {
		s.panel(&panel[r*k], &packed[0], &tile[0], rows, k, 1)
		for t := range tokens {
			copy(y.at[t*y.row+r:][:min(rows, n-r)], tile[t*rows:])
		}
	}
}

// packTokens packs k numbers of each of n tokens, from t on: a vector of each, and so on, and
// what fills none one of each.
func (s *shortProducts) packTokens(to []float64, x *kernels.Tensor, k, t, n int) {
	vectors := k / s.lanes
	whole := vectors * s.lanes
	for i := range n {
		row := x.F32[(t+i)*x.Stride:][:k]
		s.pack(&to[i*s.lanes], &row[0], vectors, n*s.lanes)
		for j, v := range row[whole:] {
			to[n*(whole+j)+i] = float64(v)
		}
	}
}

// unit computes the columns of the result from n, for the tokens from t, which are packed
// where they are several. A part of a unit goes a column at a time.
func (p *shortProduct[E]) unit(c *kernels.Call, w []E, packed []float64, n, t int) {
	weight, y := &c.Args[1], &c.Results[0]
	k, last := weight.Cols, t+p.tokens-1 // the assembly checks no bounds
	if n+matmulCols <= weight.Rows() {
		b := w[n*weight.Stride : (n+matmulCols-1)*weight.Stride+k]
		out := y.F32[t*y.Stride+n : last*y.Stride+n+matmulCols]
		p.run(c, b, weight.Stride, packed, t, out)
		return
	}
	for ; n < weight.Rows(); n++ {
		b := w[n*weight.Stride : n*weight.Stride+k]
		out := y.F32[t*y.Stride+n : last*y.Stride+n+1]
		p.run(c, b, 0, packed, t, out)
	}
}

// run multiplies rows of weights, ws elements apart, with the tokens from t.
func (p *shortProduct[E]) run(c *kernels.Call, w []E, ws int, packed []float64, t int, out []float32) {
	x, k, ys := &c.Args[0], c.Args[1].Cols, c.Results[0].Stride
	if p.tokens > 1 {
		p.many(&w[0], ws, &packed[:p.tokens*k][0], &out[0], ys, k)
		return
	}
	a := x.F32[t*x.Stride : t*x.Stride+k]
	p.one(&w[0], ws, &a[0], &out[0], ys, k)
}
