package cpu

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// shortProducts are products whose sums are in float64, see shortDepth, by the format of
// the weight. Those of a format differ in how many tokens they take, most first, and not
// in the order of a sum.
type shortProducts struct {
	f32       []shortProduct[float32]
	bf16, f16 []shortProduct[uint16]
}

// shortProduct multiplies matmulCols rows of weights with rows of x; see the generator in gen.
type shortProduct[E float32 | uint16] struct {
	tokens int
	run    func(w *E, ws int, x *float32, xs int, y *float32, ys, k int)
}

// matmul is x wᵀ, cut as the plain one is.
func (p *shortProducts) matmul(c *kernels.Call, lo, hi int) {
	switch w := &c.Args[1]; w.DType {
	case graph.F32:
		multiplyShort(c, w.F32, p.f32, lo, hi)
	case graph.BF16:
		multiplyShort(c, w.U16, p.bf16, lo, hi)
	case graph.F16:
		multiplyShort(c, w.U16, p.f16, lo, hi)
	default:
		panic("BUG: matmul with a weight in " + w.DType.String())
	}
}

// panelBytes of weights stay in a core's cache while all tokens go past them.
const panelBytes = 256 << 10

// multiplyShort computes units lo to hi: for a panel of them, a few tokens after the other.
func multiplyShort[E float32 | uint16](c *kernels.Call, w []E, ps []shortProduct[E], lo, hi int) {
	x, weight := &c.Args[0], &c.Args[1]
	if weight.Cols == 0 {
		shortMatmul(c, lo, hi)
		return
	}
	units := max(1, panelBytes/(matmulCols*weight.Cols*int(unsafe.Sizeof(w[0]))))
	for ; lo < hi; lo += units {
		for t := 0; t < x.Rows(); {
			i := 0
			for ps[i].tokens > x.Rows()-t {
				i++
			}
			for u := lo; u < min(lo+units, hi); u++ {
				ps[i].unit(c, w, u*matmulCols, t)
			}
			t += ps[i].tokens
		}
	}
}

// unit computes the columns of the result from n, for the tokens from t. What is not a
// whole unit goes a column at a time.
func (p *shortProduct[E]) unit(c *kernels.Call, w []E, n, t int) {
	x, weight, y := &c.Args[0], &c.Args[1], &c.Results[0]
	k, last := weight.Cols, t+p.tokens-1
	a := x.F32[t*x.Stride : last*x.Stride+k] // the assembly checks no bounds
	if n+matmulCols <= weight.Rows() {
		b := w[n*weight.Stride : (n+matmulCols-1)*weight.Stride+k]
		out := y.F32[t*y.Stride+n : last*y.Stride+n+matmulCols]
		p.run(&b[0], weight.Stride, &a[0], x.Stride, &out[0], y.Stride, k)
		return
	}
	for ; n < weight.Rows(); n++ {
		b := w[n*weight.Stride : n*weight.Stride+k]
		out := y.F32[t*y.Stride+n : last*y.Stride+n+1]
		p.run(&b[0], 0, &a[0], x.Stride, &out[0], y.Stride, k)
	}
}

var shortAVX2 = shortProducts{
	f32:  []shortProduct[float32]{{3, shortF32x3AVX2}, {1, shortF32x1AVX2}},
	bf16: []shortProduct[uint16]{{3, shortBF16x3AVX2}, {1, shortBF16x1AVX2}},
	f16:  []shortProduct[uint16]{{3, shortF16x3AVX2}, {1, shortF16x1AVX2}},
}

var shortAVX512 = shortProducts{
	f32:  []shortProduct[float32]{{3, shortF32x3AVX512}, {1, shortF32x1AVX512}},
	bf16: []shortProduct[uint16]{{3, shortBF16x3AVX512}, {1, shortBF16x1AVX512}},
	f16:  []shortProduct[uint16]{{3, shortF16x3AVX512}, {1, shortF16x1AVX512}},
}
