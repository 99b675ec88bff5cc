package cpu

import (
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/x448/float16"
)

// blockProducts are what an instruction set has for matmul with weights of Q8: how many
// tokens a function takes, most first. They do not differ in the order of a sum.
type blockProducts []blockProduct

type blockProduct struct {
	tokens int
	wide   bool // of AVX-512
}

var (
	blocksAVX2   = blockProducts{{3, false}, {1, false}}
	blocksAVX512 = blockProducts{{6, true}, {3, true}, {1, true}}
)

// halves has what each f16 is in f32.
var halves = sync.OnceValue(func() *[1 << 16]float32 {
	var table [1 << 16]float32
	for i := range table {
		table[i] = float16.Frombits(uint16(i)).Float32()
	}
	return &table
})

// maxTokens is the most that a function takes.
const maxTokens = 6

// run calls the function; not through a variable, which would move what the pointers
// point to to the heap.
func (p blockProduct) run(w *byte, ws int, x *float32, xs int, y *float32, ys, k int) {
	switch p {
	case blockProduct{6, true}:
		blocksx6AVX512(w, ws, x, xs, y, ys, k, halves())
	case blockProduct{3, true}:
		blocksx3AVX512(w, ws, x, xs, y, ys, k, halves())
	case blockProduct{1, true}:
		blocksx1AVX512(w, ws, x, xs, y, ys, k, halves())
	case blockProduct{3, false}:
		blocksx3AVX2(w, ws, x, xs, y, ys, k, halves())
	default:
		blocksx1AVX2(w, ws, x, xs, y, ys, k, halves())
	}
}

// matmul is x wᵀ, cut as the plain one is: for a panel of weights, a few tokens after
// the other.
func (ps blockProducts) matmul(c *kernels.Call, lo, hi int) {
	x, w := &c.Args[0], &c.Args[1]
	if w.Cols == 0 {
		matmul(c, lo, hi)
		return
	}
	units := max(1, panelBytes/w.Blocks.Bytes(matmulCols))
	for ; lo < hi; lo += units {
		for t := 0; t < x.Rows(); {
			i := 0
			for ps[i].tokens > x.Rows()-t {
				i++
			}
			for u := lo; u < min(lo+units, hi); u++ {
				ps[i].unit(c, u*matmulCols, t)
			}
			t += ps[i].tokens
		}
	}
}

// unit computes the columns of the result from n, for the tokens from t. What is not a
// whole unit goes a column at a time.
func (p blockProduct) unit(c *kernels.Call, n, t int) {
	if rows := c.Args[1].Rows(); n+matmulCols > rows {
		for ; n < rows; n++ {
			p.columns(c, n, 1, t)
		}
		return
	}
	p.columns(c, n, matmulCols, t)
}

// columns computes neighbouring columns of the result, 1 or matmulCols.
func (p blockProduct) columns(c *kernels.Call, n, cols, t int) {
	x, y, b := &c.Args[0], &c.Results[0], c.Args[1].Blocks
	ws := b.Bytes(1)
	w := c.Args[1].Q8[n*ws : (n+cols)*ws] // the assembly checks no bounds
	if cols == 1 {
		ws = 0
	}
	if b.Plain() {
		in, out := p.part(x, t, 0, b.Cols), p.part(y, t, n, cols)
		p.run(&w[0], ws, &in[0], x.Stride, &out[0], y.Stride, b.Count)
		return
	}
	for k := range p.tokens {
		clear(y.Row(t + k)[n : n+cols])
	}
	for _, s := range b.Spans {
		for s.Len > 0 {
			s = p.piece(c, w, ws, n, cols, t, s)
		}
	}
}

// part is columns of the rows from t on, from the first to the last.
func (p blockProduct) part(x *kernels.Tensor, t, from, cols int) []float32 {
	return x.F32[t*x.Stride+from : (t+p.tokens-1)*x.Stride+from+cols]
}

// piece adds the products of what is first in a span, and returns the rest of it: as
// many blocks as are whole, or one of which only a part counts. The tokens have zeros
// then, where the block has what is not in the span.
func (p blockProduct) piece(c *kernels.Call, w []byte, ws, n, cols, t int, s graph.Span) graph.Span {
	const size = graph.BlockLen
	var padded [maxTokens * size]float32
	var sums [maxTokens * matmulCols]float32
	x, y := &c.Args[0], &c.Results[0]
	count, used := s.Len/size, s.Len/size*size
	in, stride := padded[:], size
	if whole := s.Lead == 0 && count > 0; whole {
		in, stride = p.part(x, t, s.At, used), x.Stride
	} else {
		count, used = 1, min(s.Len, size-s.Lead)
		for k := range p.tokens {
			copy(padded[k*size+s.Lead:], x.Row(t + k)[s.At:s.At+used])
		}
	}
	at := s.Block * graph.BlockBytes
	_ = w[at : at+ws*(cols-1)+count*graph.BlockBytes]
	p.run(&w[at], ws, &in[0], stride, &sums[0], matmulCols, count)
	for k := range p.tokens {
		for j, v := range sums[k*matmulCols:][:cols] {
			y.F32[(t+k)*y.Stride+n+j] += v
		}
	}
	return graph.Span{At: s.At + used, Len: s.Len - used, Block: s.Block + count, Lead: 0}
}
