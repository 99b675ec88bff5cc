package comm

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// summer sums over ranks, a block of elements at a time that is a multiple of any codec's.
type summer struct{ acc, term [graph.MaxBlock]float32 }

// sum adds n elements of all ranks, rank 0 first: of returns where those of a rank begin, and put
// gets sums after done earlier ones. Sums are rounded to the payload's format after each rank, or
// stay f32.
func (s *summer) sum(ranks, n int, f32 bool, of func(rank int) (t *kernels.Tensor, at int), put func(done int, sum []float32)) {
	for done := 0; done < n; done += len(s.acc) {
		a := s.acc[:min(len(s.acc), n-done)]
		for r := range ranks {
			t, at := of(r)
			at += t.DType.RowBytes(done) / t.DType.Bytes()
			if r == 0 {
				t.Read(a, at)
				continue
			}
			b := s.term[:len(a)]
			t.Read(b, at)
			for k, v := range b {
				a[k] += v
			}
			if !f32 {
				kernels.Round(t.DType, a)
			}
		}
		put(done, a)
	}
}
