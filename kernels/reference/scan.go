package reference

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{
	"conv1d":         whole(conv1d),
	"selective_scan": whole(selectiveScan),
	"ssd_scan":       whole(ssdScan),
})

func conv1d(c *kernels.Call) {
	convolve(c, &c.Args[2], &c.Args[3], func(sum float64, _ int) float64 { return sum })
}

// convolve puts out what then makes of the sum of a channel.
func convolve(c *kernels.Call, state, seg *kernels.Tensor, then func(sum float64, ch int) float64) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	for s := range seg.Rows() {
		start, tokens, slot := seg.Segment(s)
		for ch := range y.Cols {
			var in []float64 // history, then the segment
			for j := range w.Cols - 1 {
				in = append(in, at(state, slot, ch*(w.Cols-1)+j))
			}
			for t := range tokens {
				in = append(in, at(x, start+t, ch))
				var sum float64
				for j := range w.Cols {
					sum += at(w, ch, j) * in[t+j]
				}
				set(y, start+t, ch, then(sum, ch))
			}
			for j := range w.Cols - 1 {
				set(state, slot, ch*(w.Cols-1)+j, in[tokens+j])
			}
		}
	}
}

// selectiveScan has one rate per channel and state, ssdScan one per head.
func selectiveScan(c *kernels.Call) {
	a := &c.Args[2]
	scan(c, 1, a.Cols, func(ch, k int) float64 { return at(a, ch, k) })
}

func ssdScan(c *kernels.Call) {
	a, state := &c.Args[2], &c.Args[5]
	scan(c, state.Dims[2], state.Dims[3], func(head, _ int) float64 { return at(a, head, 0) })
}

// scan runs h = exp(dt A) h + dt x B, y = Σ_k h C for channels in heads of size
// channels and n states.
func scan(c *kernels.Call, size, n int, rate func(head, k int) float64) {
	x, dt, b, cc, state, seg, y := &c.Args[0], &c.Args[1], &c.Args[3], &c.Args[4], &c.Args[5], &c.Args[6], &c.Results[0]
	groups := kernels.GroupsOf(dt, b, n)
	for s := range seg.Rows() {
		start, tokens, slot := seg.Segment(s)
		for ch := range y.Cols {
			head := ch / size
			h := make([]float64, n)
			for k := range h {
				h[k] = at(state, slot, ch*n+k)
			}
			for t := start; t < start+tokens; t++ {
				d, sum := at(dt, t, head), 0.0
				last, decay := math.NaN(), 0.0 // of the rate before, which a head has for all states
				for k := range h {
					g := groups.Of(head)*n + k
					if r := rate(head, k); r != last {
						last, decay = r, math.Exp(d*r)
					}
					h[k] = decay*h[k] + d*at(x, t, ch)*at(b, t, g)
					sum += h[k] * at(cc, t, g)
				}
				set(y, t, ch, sum)
			}
			for k := range h {
				set(state, slot, ch*n+k, h[k])
			}
		}
	}
}
