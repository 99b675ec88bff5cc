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

// shortTokens is the most that are packed together.
const shortTokens = 6

// packedShort has memory for packed tokens.
var packedShort = sync.Pool{New: func() any { return new([shortTokens * kernels.ShortDepth]float64) }}

// multiplyShort computes units lo to hi: for a panel of them, a few tokens after the other.
func multiplyShort[E float32 | uint16](s *shortProducts, c *kernels.Call, w []E, ps []shortProduct[E], lo, hi int) {
	x, weight := &c.Args[0], &c.Args[1]
	if weight.Cols == 0 {
		shortMatmul(c, lo, hi)
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

var shortAVX2 = shortProducts{
	lanes: 4, pack: packShortAVX2,
	f32:  []shortProduct[float32]{{3, nil, shortF32x3AVX2}, {1, shortF32x1AVX2, nil}},
	bf16: []shortProduct[uint16]{{3, nil, shortBF16x3AVX2}, {1, shortBF16x1AVX2, nil}},
	f16:  []shortProduct[uint16]{{3, nil, shortF16x3AVX2}, {1, shortF16x1AVX2, nil}},
}

var shortAVX512 = shortProducts{
	lanes: 8, pack: packShortAVX512,
	f32:  []shortProduct[float32]{{6, nil, shortF32x6AVX512}, {3, nil, shortF32x3AVX512}, {1, shortF32x1AVX512, nil}},
	bf16: []shortProduct[uint16]{{6, nil, shortBF16x6AVX512}, {3, nil, shortBF16x3AVX512}, {1, shortBF16x1AVX512, nil}},
	f16:  []shortProduct[uint16]{{6, nil, shortF16x6AVX512}, {3, nil, shortF16x3AVX512}, {1, shortF16x1AVX512, nil}},
}
