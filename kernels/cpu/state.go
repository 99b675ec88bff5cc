package cpu

import (
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// widened is a stretch of a state in f32, which kernels update: of a state that is kept
// in f32 its memory, of others a copy, which is rounded when it is put back.
type widened struct {
	h     []float32
	state *kernels.Tensor
	at    int
	copy  *[]float32
}

var copies = sync.Pool{New: func() any { return new([]float32) }}

// widen takes n elements of a state, from the one at index at on.
func widen(state *kernels.Tensor, at, n int) widened {
	if state.DType == graph.F32 {
		return widened{h: state.F32[at : at+n : at+n]}
	}
	w := borrow(n)
	w.state, w.at = state, at
	state.Read(w.h, at)
	return w
}

// borrow is memory for n numbers; giveBack ends that.
func borrow(n int) widened {
	w := widened{copy: copies.Get().(*[]float32)}
	if cap(*w.copy) < n {
		*w.copy = make([]float32, n)
	}
	w.h = (*w.copy)[:n]
	return w
}

// put rounds the stretch back to where it came from.
func (w *widened) put() {
	if w.state != nil {
		w.state.Write(w.at, w.h)
		w.giveBack()
	}
}

func (w *widened) giveBack() {
	if w.copy != nil {
		copies.Put(w.copy)
	}
}

// atLeast makes room for n numbers; what was there may be lost.
func (w *widened) atLeast(n int) {
	if len(w.h) < n {
		w.giveBack()
		*w = borrow(n)
	}
}

// sized is memory for n numbers, that of a slice where it has as many.
func sized(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	*s = (*s)[:n]
	return *s
}
