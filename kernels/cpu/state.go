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
	by    stateFormat
	state *kernels.Tensor
	at    int
	copy  *[]float32
}

// stateFormat reads and writes elements as a tensor does.
type stateFormat interface {
	read(t *kernels.Tensor, dst []float32, at int)
	write(t *kernels.Tensor, at int, src []float32)
}

// oneByOne does so without vectors.
type oneByOne struct{}

func (oneByOne) read(t *kernels.Tensor, dst []float32, at int)  { t.Read(dst, at) }
func (oneByOne) write(t *kernels.Tensor, at int, src []float32) { t.Write(at, src) }

var copies = sync.Pool{New: func() any { return new([]float32) }}

// widen takes n elements of a state, from the one at index at on.
func widen(state *kernels.Tensor, at, n int) widened { return widenBy(oneByOne{}, state, at, n) }

func widenBy(by stateFormat, state *kernels.Tensor, at, n int) widened {
	if state.DType == graph.F32 {
		return widened{h: state.F32[at : at+n : at+n]}
	}
	w := borrow(n)
	w.by, w.state, w.at = by, state, at
	by.read(state, w.h, at)
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
		w.by.write(w.state, w.at, w.h)
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
