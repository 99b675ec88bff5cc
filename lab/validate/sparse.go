package validate

import (
	"bytes"
	"math"

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
	n := len(s.shape)
	if n < 2 {
		return pattern{}
	}
	p := patternOf(s.shape[n-2], s.shape[n-1], c.run)
	p.offset = uint32(newStream(c.seed, "pattern "+s.name).bits(0))
	return p
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

func scaleOf(n int) float32 { return float32(1 / math.Sqrt(float64(max(1, n)))) }

// stride is how many columns are skipped at a time where all are zero.
const stride = 32

var zeros [4 * stride]byte

// multiply runs a matmul by weights, without columns of zeros, and returns how many numbers it
// multiplied; false where an operand is something else, or shapes do not fit.
func multiply(c *kernels.Call) (multiplied int64, ok bool) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	var bits []byte
	switch w.DType {
	case graph.F32:
		bits = bytesOf(w.F32)
	case graph.BF16, graph.F16:
		bits = bytesOf(w.U16)
	}
	each := w.DType.Bytes()
	if bits == nil || x.DType != graph.F64 || y.DType != graph.F64 || x.Cols != w.Cols || y.Cols != w.Rows() || x.Rows() != y.Rows() {
		return 0, false
	}
	var line [stride]float32
	for j := range w.Rows() {
		for lo := 0; lo < w.Cols; lo += stride {
			n, at := min(stride, w.Cols-lo), j*w.Stride+lo
			if bytes.Equal(bits[at*each:(at+n)*each], zeros[:n*each]) {
				continue
			}
			w.Read(line[:n], at)
			for i := range x.Rows() {
				sum := 0.0
				for k, v := range x.F64[i*x.Stride+lo:][:n] {
					sum += v * float64(line[k])
				}
				y.F64[i*y.Stride+j] += sum
			}
			multiplied += int64(n * x.Rows())
		}
	}
	return multiplied, true
}
