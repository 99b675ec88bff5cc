package reference

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"parts": whole(func(c *kernels.Call) {
		kernels.PutParts(&c.Results[0], &c.Args[1], c.Attrs.Int("parts"), c.Attrs.Int("slots") == 1)
	}),
	"zeros":            whole(zeros),
	"segment_sums":     whole(segmentSums),
	"conv_states":      whole(convStates),
	"selective_states": whole(selectiveStates),
	"ssd_states":       whole(ssdStates),
	"delta_states":     whole(deltaStates),
})

func zeros(c *kernels.Call) {
	y := &c.Results[0]
	n := y.Dims[y.Axis]
	for i := range y.Rows() {
		for j := range y.Cols {
			one := c.Attrs.Int("diagonal") == 1 && j%n == j/n%n
			set(y, i, j, map[bool]float64{true: 1}[one])
		}
	}
}

func segmentSums(c *kernels.Call) {
	x, seg, y := &c.Args[0], &c.Args[1], &c.Results[0]
	for s := range seg.Rows() {
		start, tokens, _ := seg.Segment(s)
		for ch := range y.Cols {
			var sum float64
			for t := range tokens {
				sum += at(x, start+t, ch)
			}
			set(y, s, ch, sum)
		}
	}
}

func convStates(c *kernels.Call) {
	u, state, seg, before := &c.Args[0], &c.Args[1], &c.Args[2], &c.Results[0]
	keep := u.Dims[2]
	for s := range seg.Rows() {
		_, _, slot := seg.Segment(s)
		for ch := range u.Dims[1] {
			var in []float64 // the last is the latest
			for j := range keep {
				in = append(in, at(state, slot, ch*keep+j))
			}
			kernels.EachPart(u, seg, s, func(row, tokens int) {
				for j := range keep {
					set(before, row, ch*keep+j, in[len(in)-keep+j])
				}
				for j := max(0, keep-tokens); j < keep; j++ {
					in = append(in, at(u, row, ch*keep+j))
				}
			})
			for j := range keep {
				set(state, slot, ch*keep+j, in[len(in)-keep+j])
			}
		}
	}
}

// passParts takes states past parts: after is what a part makes of a state in a row.
func passParts(parts, state, seg, before *kernels.Tensor, after func(h []float64, row int) []float64) {
	for s := range seg.Rows() {
		_, _, slot := seg.Segment(s)
		h := make([]float64, state.Cols)
		for k := range h {
			h[k] = at(state, slot, k)
		}
		kernels.EachPart(parts, seg, s, func(row, tokens int) {
			for k := range h {
				set(before, row, k, h[k])
			}
			if tokens > 0 { // else its row says nothing
				h = after(h, row)
			}
		})
		for k := range h {
			set(state, slot, k, h[k])
		}
	}
}

func selectiveStates(c *kernels.Call) {
	sums, u, a := &c.Args[0], &c.Args[1], &c.Args[2]
	passParts(sums, &c.Args[3], &c.Args[4], &c.Results[0], func(h []float64, row int) []float64 {
		for k := range h {
			h[k] = math.Exp(at(a, k/a.Cols, k%a.Cols)*at(sums, row, k/a.Cols))*h[k] + at(u, row, k)
		}
		return h
	})
}

func ssdStates(c *kernels.Call) {
	sums, u, a := &c.Args[0], &c.Args[1], &c.Args[2]
	passParts(sums, &c.Args[3], &c.Args[4], &c.Results[0], func(h []float64, row int) []float64 {
		n := len(h) / max(1, sums.Cols)
		for k := range h {
			h[k] = math.Exp(at(a, k/n, 0)*at(sums, row, k/n))*h[k] + at(u, row, k)
		}
		return h
	})
}

func deltaStates(c *kernels.Call) {
	m, u := &c.Args[0], &c.Args[1]
	n, size := u.Dims[2], u.Dims[3]
	passParts(m, &c.Args[2], &c.Args[3], &c.Results[0], func(h []float64, row int) []float64 {
		out := make([]float64, len(h))
		for k := range out {
			head, i, j := k/(n*size), k/size%n, k%size
			out[k] = at(u, row, k)
			for l := range n {
				out[k] += at(m, row, (head*n+i)*n+l) * h[(head*n+l)*size+j]
			}
		}
		return out
	})
}
