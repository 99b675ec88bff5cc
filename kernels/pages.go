package kernels

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
)

// Pages is the memory of a rank's caches: pages for the rows of a fixed number of tokens, which
// all its caches share. A page has the rows of one cache after another.
type Pages struct {
	Tokens int       // of a page
	Memory [][]byte  // of each page
	Of     [][]int32 // which pages each sequence of the batch has, in order
}

// Cached finds what a cache has of a token of a sequence of the batch, whose slot is given too: the
// row begins at an element of a tensor, and is the first of n that lie there one after another.
func (t *Tensor) Cached(seq, slot, token int) (rows Tensor, at, n int) {
	p := t.Pages
	if p == nil {
		return *t, (slot*t.Dims[1] + token) * t.Stride, t.Dims[1] - token
	}
	i := token % p.Tokens
	rows = Tensor{DType: t.DType, Cols: t.Cols, Stride: t.Stride}
	data := unsafe.Pointer(&p.Memory[p.Of[seq][token/p.Tokens]][t.InPage:][:p.Tokens*t.Stride*t.DType.Bytes()][0])
	switch t.DType {
	case graph.F32:
		rows.F32 = unsafe.Slice((*float32)(data), p.Tokens*t.Stride)
	case graph.F8:
		rows.U8 = unsafe.Slice((*byte)(data), p.Tokens*t.Stride)
	default:
		rows.U16 = unsafe.Slice((*uint16)(data), p.Tokens*t.Stride)
	}
	return rows, i * t.Stride, p.Tokens - i
}
