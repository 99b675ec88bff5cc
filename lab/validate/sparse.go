package validate

import (
	"bytes"
	"math"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// defaultRun is the least length of the runs of weights that are not zero.
const defaultRun = 32

// pattern says which elements of a matrix are random numbers; the others are zeros, so that a
// product of real dimensions takes little time. Each row has two runs of numbers. Runs of
// consecutive rows begin where multiples of the golden ratio do in a circle, so that those of any
// range of rows cover all columns evenly, whatever rows and columns a rank has: an element of the
// operand that is missing, twice there, or at another place changes a result. In each group of
// every rows one has no zeros: tokens have embeddings there.
type pattern struct {
	cols, run, every int
	offset           uint32
	sparse           bool // false: nothing is zero
}

// pattern is that of a tensor, as its file has it.
func (c *randomWeights) pattern(s stored) pattern {
	p := s.pattern(c.run)
	p.offset = uint32(newStream(c.seed, "pattern "+s.name).bits(0))
	return p
}

// pattern is that of a tensor with runs of at least some elements, of no seed.
func (s stored) pattern(run int) pattern {
	n := len(s.shape)
	if n < 2 || s.dtype.Quantized() {
		return pattern{}
	}
	return patternOf(s.shape[n-2], s.shape[n-1], run)
}

// patternOf is the pattern of matrices, with runs of at least run elements: longer ones if rows
// are few, so that each column is in several.
func patternOf(rows, cols, run int) pattern {
	if run < cols {
		run = max(run, 2*cols/max(1, rows))
	}
	return pattern{cols: cols, run: run, every: cols/max(1, run) | 1, sparse: run < cols/4}
}

// each calls f with the columns of a row that are not zero, and the standard deviation that keeps
// the size of what the row is multiplied with.
func (p pattern) each(row int, f func(lo, hi int, scale float32)) {
	if row%p.every == 0 {
		f(0, p.cols, scaleOf(p.cols))
		return
	}
	scale := scaleOf(2 * p.run)
	for k := range uint32(2) {
		const golden = 0x9e3779b9 // of 2^32
		at := (uint32(row)*2+k)*golden + p.offset
		lo := int(uint64(at) * uint64(p.cols) >> 32)
		f(lo, min(lo+p.run, p.cols), scale)
		f(0, max(0, lo+p.run-p.cols), scale)
	}
}

// matrix is a tensor with a pattern: rows of it, one after another.
type matrix struct {
	pattern
	data  []byte
	rows  int
	bytes int // of an element
}

// take makes a matrix of zeros.
func (c *randomWeights) take(p pattern, rows, bytes int) matrix {
	m := matrix{pattern: p, rows: rows, bytes: bytes}
	n := rows * p.cols * bytes
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := int(aligned(int64(n))); all <= len(c.zeros) {
		m.data, c.zeros = c.zeros[:n:n], c.zeros[all:]
	} else {
		m.data = make([]byte, n)
	}
	c.sparse = append(c.sparse, m)
	return m
}

// aligned is a number of bytes after which any element may begin.
func aligned(n int64) int64 { return (n + 63) &^ 63 }

// visit calls f with the elements that are not zero.
func (m *matrix) visit(f func(lo, hi int, scale float32)) {
	for row := range m.rows {
		first := row * m.cols
		m.each(row, func(lo, hi int, scale float32) { f(first+lo, first+hi, scale) })
	}
}

// clear makes all elements of the sparse tensors zero again, whose memory the next section takes.
func (c *randomWeights) clear() {
	for i := range c.sparse {
		m := &c.sparse[i]
		m.visit(func(lo, hi int, _ float32) { clear(m.data[lo*m.bytes : hi*m.bytes]) })
	}
}

// viewed is the matrix that weights are rows or columns of, and the index of their first element
// there; nil: they are something else.
func (c *randomWeights) viewed(w *kernels.Tensor, bits []byte) (*matrix, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.sparse {
		m := &c.sparse[i]
		at := int(uintptr(unsafe.Pointer(&bits[0])) - uintptr(unsafe.Pointer(&m.data[0])))
		if at < 0 || at >= len(m.data) {
			continue
		}
		if at /= m.bytes; m.bytes == w.DType.Bytes() && w.Stride == m.cols && at%m.cols+w.Cols <= m.cols {
			return m, at
		}
	}
	return nil, 0
}

// stretches calls f with the columns of a row of weights that may be numbers.
func (c *randomWeights) stretches(w *kernels.Tensor, bits []byte) func(row int, f func(lo, hi int)) {
	if m, at := c.viewed(w, bits); m != nil {
		first, skipped := at/m.cols, at%m.cols
		return func(row int, f func(lo, hi int)) {
			m.each(first+row, func(lo, hi int, _ float32) {
				if lo, hi = max(lo-skipped, 0), min(hi-skipped, w.Cols); lo < hi {
					f(lo, hi)
				}
			})
		}
	}
	each := w.DType.Bytes()
	return func(row int, f func(lo, hi int)) {
		for lo := 0; lo < w.Cols; lo += stride {
			n, at := min(stride, w.Cols-lo), row*w.Stride+lo
			if !bytes.Equal(bits[at*each:(at+n)*each], zeros[:n*each]) {
				f(lo, lo+n)
			}
		}
	}
}

func scaleOf(n int) float32 { return float32(1 / math.Sqrt(float64(max(1, n)))) }

// stride is how many columns are skipped at a time where all are zero.
const stride = 32

var zeros [4 * stride]byte

// multiply runs a matmul by weights, without columns of zeros, and returns how many numbers it
// multiplied; false where an operand is something else, or shapes do not fit.
func (c *randomWeights) multiply(call *kernels.Call) (multiplied int64, ok bool) {
	x, w, y := &call.Args[0], &call.Args[1], &call.Results[0]
	var bits []byte
	switch w.DType {
	case graph.F32:
		bits = bytesOf(w.F32)
	case graph.BF16, graph.F16:
		bits = bytesOf(w.U16)
	}
	if bits == nil || x.DType != graph.F64 || y.DType != graph.F64 || x.Cols != w.Cols || y.Cols != w.Rows() || x.Rows() != y.Rows() {
		return 0, false
	}
	visit := c.stretches(w, bits)
	line := make([]float32, w.Cols)
	for j := range w.Rows() {
		visit(j, func(lo, hi int) {
			part := line[:hi-lo]
			w.Read(part, j*w.Stride+lo)
			for i := range x.Rows() {
				sum := 0.0
				for k, v := range x.F64[i*x.Stride+lo:][:len(part)] {
					sum += v * float64(part[k])
				}
				y.F64[i*y.Stride+j] += sum
			}
			multiplied += int64(len(part) * x.Rows())
		})
	}
	return multiplied, true
}
