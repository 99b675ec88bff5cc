package cuda

import (
	"iter"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// plane is a part of each block of a format. In GPU memory the planes of a line lie one after
// another, each with its part of all blocks, so that loads are aligned.
type plane struct{ at, bytes int }

// planes are those of each format, as blocks.h reads them: what is aligned most comes first.
var planes = map[graph.DType][]plane{
	graph.Q8:       {{2, 32}, {0, 2}},
	graph.Q4_0:     {{2, 16}, {0, 2}},
	graph.Q4_1:     {{4, 16}, {0, 4}},
	graph.Q5_0:     {{6, 16}, {2, 4}, {0, 2}},
	graph.Q5_1:     {{8, 16}, {4, 4}, {0, 4}},
	graph.IQ4_NL:   {{2, 16}, {0, 2}},
	graph.IQ4_XS:   {{8, 128}, {0, 8}},
	graph.Q4_K:     {{16, 128}, {0, 16}},
	graph.Q5_K:     {{48, 128}, {16, 32}, {0, 16}},
	graph.Q6_K:     {{0, 128}, {128, 64}, {192, 16}, {208, 2}},
	graph.FP8_128:  {{4, 128}, {0, 4}},
	graph.FP8_32:   {{4, 32}, {0, 4}},
	graph.NVFP4:    {{12, 64}, {4, 8}, {0, 4}},
	graph.MXFP4:    {{1, 16}, {0, 1}},
	graph.INT4_128: {{5, 64}, {0, 4}, {4, 1}},
	graph.INT4_32:  {{5, 16}, {0, 4}, {4, 1}},
}

// LineBytes is how far apart the lines of weights in blocks are in GPU memory: their bytes, up to a
// multiple of 16, by less than a block.
func LineBytes(b *graph.Blocks) int { return (b.Bytes(1) + 15) / 16 * 16 }

// PutLine lays a line of blocks in planes, in LineBytes of memory.
func PutLine(to, line []byte, b *graph.Blocks) {
	size := b.Format.Bytes
	for _, p := range planes[b.DType] {
		for at := p.at; at < len(line); at += size {
			to = to[copy(to, line[at:at+p.bytes]):]
		}
	}
	clear(to)
}

// BytesBefore is the bytes of a tensor before element i; in blocks, that is the first of a line.
func BytesBefore(t *kernels.Tensor, i int) int {
	if t.Blocks != nil {
		return i / max(1, t.Blocks.Cols) * LineBytes(t.Blocks)
	}
	return i * t.DType.Bytes()
}

// passCols is how many columns a thread block multiplies with gemvRows rows, and with those of
// experts: few of a weight in blocks, as their kernels take more registers.
func (t *Tensor) passCols() int {
	if t.Blocks != nil {
		return gemvCols / 2
	}
	return gemvCols
}

// blockCols is how many columns a line has whose blocks are multiplied as a whole.
func (t *Tensor) blockCols() int { return t.Blocks.Count * t.Blocks.Format.Elems }

// meets reports whether kernels multiply the columns of a weight with those of x as they lie: in
// blocks, by eights. Where a rank's columns begin in the middle of a block, or in several places, x
// is spread first. The number of rows does not matter, and so not for a row's bits.
func (t *Tensor) meets(x *Tensor) bool {
	b := t.Blocks
	if b == nil || b.Cols == 0 {
		return true
	}
	whole := len(b.Spans) == 1 && b.Spans[0].Lead == 0 && b.Cols%8 == 0
	return whole && x.Ptr%16 == 0 && x.Stride*x.DType.Bytes()%16 == 0
}

// spread copies x to memory where its columns lie as the weight's do in their blocks, with zeros
// for what is other ranks', which the weight's blocks have too.
func (c *Call) spread(to uint64, x, w *Tensor) *Tensor {
	y := spreadOf(to, x, w)
	c.launches = append(c.launches, Zero(*y)...)
	for _, s := range w.Blocks.Spans {
		from, at := *x, *y
		from.Ptr, at.Ptr = x.offset(s.At), y.offset(s.Block*w.Blocks.Format.Elems+s.Lead)
		c.copy(&at, &from, 0, s.Len)
	}
	return y
}

// spreadOf is what spread makes.
func spreadOf(to uint64, x, w *Tensor) *Tensor {
	y := *x
	y.Ptr, y.Cols, y.Stride = to, w.blockCols(), w.blockCols()
	return &y
}

// spreadBytes is the memory for it.
func spreadBytes(rows int, w *Tensor) int64 {
	return int64(rows*w.blockCols()*4+255) / 256 * 256
}

// widenedSlice is about how many bytes of a weight are widened at a time, for products of many
// rows: what a GPU's L2 cache keeps until they are multiplied.
var widenedSlice = 16 << 20 // tests make it smaller

// widened multiplies many rows by a weight in blocks: slices of its rows are widened, to bf16 if
// that is the math, and multiplied as weights in that format are.
func (c *Call) widened(p *product) error {
	from := p.w.Ptr
	for q := range c.slicesOf(p) {
		c.launch("widen_"+format(p.w.DType), "widen_"+format(q.w.DType), [3]int{q.w.Rows(), ceilDiv(q.w.Cols, 2048), 1}, [3]int{256}, 0, q.w.Ptr, from, p.w.stride(), q.w.Cols)
		if err := c.multiply(q); err != nil {
			return err
		}
		from += uint64(int64(q.w.Rows()) * p.w.stride())
	}
	return nil
}

// widenedBytes is the scratch for it.
func (c *Call) widenedBytes(p *product) (n int64) {
	for q := range c.slicesOf(p) {
		n = max(n, q.scratch-p.scratch+c.partialBytes(q))
	}
	return n
}

// slicesOf gives the products of slices of the weight's rows, which lie one after another in the
// same scratch memory. Their sizes depend on the weight's shape alone.
func (c *Call) slicesOf(p *product) iter.Seq[*product] {
	w := Tensor{Ptr: c.Scratch + uint64(p.scratch)}
	w.DType, w.Cols, w.Stride, w.Dims = graph.F32, p.w.Cols, p.w.Cols, p.w.Dims
	if c.Options.Math == BF16 {
		w.DType = graph.BF16
	}
	row := w.Cols * w.DType.Bytes()
	rows := max(1, widenedSlice/max(1, row)/mmaWide) * mmaWide
	return func(yield func(q *product) bool) {
		for at := 0; at < p.w.Rows(); at += rows {
			q, w, y := *p, w, *p.y
			w.Dims[0], w.Dims[1] = min(rows, p.w.Rows()-at), w.Cols
			y.Ptr, y.Cols = y.offset(at), w.Rows()
			if p.sum != nil {
				sum := *p.sum
				sum.Ptr = sum.offset(at)
				q.sum = &sum
			}
			q.w, q.y, q.scratch = &w, &y, p.scratch+int64(w.Rows()*row+255)/256*256
			if !yield(&q) {
				return
			}
		}
	}
}
