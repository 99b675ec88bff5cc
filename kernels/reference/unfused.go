package reference

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"scan_terms":  whole(scanTerms),
	"scan_prefix": whole(scanPrefix),
	"scan_output": whole(scanOutput),
})

func scanTerms(c *kernels.Call) {
	u, dt, a, b, decay, input := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Results[0], &c.Results[1]
	n := a.Cols
	groups := kernels.GroupsOf(dt, b, n)
	for t := range u.Rows() {
		for ch := range u.Cols {
			d := at(dt, t, ch)
			for k := range n {
				set(decay, t, ch*n+k, math.Exp(d*at(a, ch, k)))
				set(input, t, ch*n+k, d*at(u, t, ch)*at(b, t, groups.Of(ch)*n+k))
			}
		}
	}
}

func scanPrefix(c *kernels.Call) {
	decay, input, seg, products, sums := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0], &c.Results[1]
	for s := range seg.Rows() {
		start, tokens, _ := seg.Segment(s)
		for i := range decay.Cols {
			product, sum := 1.0, 0.0
			for t := start; t < start+tokens; t++ {
				product *= at(decay, t, i)
				sum = at(decay, t, i)*sum + at(input, t, i)
				set(products, t, i, product)
				set(sums, t, i, sum)
			}
		}
	}
}

func scanOutput(c *kernels.Call) {
	products, sums, cc, state, seg, y := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Results[0]
	n := state.Dims[2]
	groups := kernels.GroupsOf(y, cc, n)
	for s := range seg.Rows() {
		start, tokens, slot := seg.Segment(s)
		for ch := range y.Cols {
			h, before := make([]float64, n), make([]float64, n)
			for k := range h {
				before[k] = at(state, slot, ch*n+k)
				h[k] = before[k]
			}
			for t := start; t < start+tokens; t++ {
				var sum float64
				for k := range h {
					h[k] = at(products, t, ch*n+k)*before[k] + at(sums, t, ch*n+k)
					sum += h[k] * at(cc, t, groups.Of(ch)*n+k)
				}
				set(y, t, ch, sum)
			}
			for k := range h {
				set(state, slot, ch*n+k, h[k])
			}
		}
	}
}
