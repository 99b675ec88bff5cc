package reference

import (
	"math"

	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, kernels.Set{"delta_scan": whole(deltaScan)})

// deltaHead is one head of one sequence, token by token: rows of numbers, and the state[n p].
type deltaHead struct {
	q, k, v, decay [][]float64
	beta           []float64
	scale          float64
	state          [][]float64
}

// deltaScan computes each head by steps.
func deltaScan(c *kernels.Call) {
	state, seg := &c.Args[5], &c.Args[6]
	heads, n, size := state.Dims[1], state.Dims[2], state.Dims[3]
	for s := range seg.Rows() {
		start, tokens, slot := seg.Segment(s)
		for head := range heads {
			h := deltaHeadOf(c, start, tokens, head)
			for k := range n {
				h.state = append(h.state, read(make([]float64, size), state, slot, (head*n+k)*size))
			}
			for t, y := range h.steps() {
				for j, v := range y {
					set(&c.Results[0], start+t, head*size+j, v)
				}
			}
			for k, row := range h.state {
				for j, v := range row {
					set(state, slot, (head*n+k)*size+j, v)
				}
			}
		}
	}
}

// deltaHeadOf reads what a head has of the tokens of a sequence.
func deltaHeadOf(c *kernels.Call, start, tokens, head int) *deltaHead {
	q, k, v, g, beta, state := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4], &c.Args[5]
	n, size := state.Dims[2], state.Dims[3]
	group := kernels.GroupsOf(beta, k, n).Of(head)
	h := &deltaHead{scale: c.Attrs.Float("scale")}
	for t := start; t < start+tokens; t++ {
		h.q = append(h.q, read(make([]float64, n), q, t, group*n))
		h.k = append(h.k, read(make([]float64, n), k, t, group*n))
		h.v = append(h.v, read(make([]float64, size), v, t, head*size))
		h.beta = append(h.beta, at(beta, t, head))
		decay, per := make([]float64, n), g.Cols/beta.Cols
		for i := range decay {
			decay[i] = math.Exp(at(g, t, head*per+i%per))
		}
		h.decay = append(h.decay, decay)
	}
	return h
}

// steps is the definition: the state decays, then takes the token, then gives y.
func (h *deltaHead) steps() (y [][]float64) {
	for t, k := range h.k {
		for i, row := range h.state {
			for j := range row {
				row[j] *= h.decay[t][i]
			}
		}
		known := h.read(k)
		for i, row := range h.state {
			for j := range row {
				row[j] += k[i] * h.beta[t] * (h.v[t][j] - known[j])
			}
		}
		y = append(y, h.read(h.q[t]))
		for j := range y[t] {
			y[t][j] *= h.scale
		}
	}
	return y
}

// read is Sᵀx.
func (h *deltaHead) read(x []float64) []float64 {
	sum := make([]float64, len(h.v[0]))
	for i, row := range h.state {
		for j, v := range row {
			sum[j] += v * x[i]
		}
	}
	return sum
}
