package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, kernels.Set{
	"delta_scan": {Units: deltaUnits, Run: deltaScan},
})

// deltaUnits counts the heads of all sequences.
func deltaUnits(c *kernels.Call) int { return c.Args[6].Rows() * c.Args[4].Cols }

// deltaScan is the gated delta rule, token by token.
func deltaScan(c *kernels.Call, lo, hi int) {
	for unit := lo; unit < hi; unit++ {
		h, start, tokens, kept := deltaHeadOf(c, unit)
		buf := borrow(3*h.n + 2*h.size)
		decay, k, q := buf.h[:h.n], buf.h[h.n:2*h.n], buf.h[2*h.n:3*h.n]
		known, out := buf.h[3*h.n:3*h.n+h.size], buf.h[3*h.n+h.size:]
		for t := start; t < start+tokens; t++ {
			expInto(decay, h.decays(t, decay), 1)
			for i, d := range decay {
				k[i], q[i] = d*h.kAt(t)[i], d*h.qAt(t)[i]
			}
			h.read(known, out, k, q)
			h.write(known, decay, t)
			y, fresh := h.yAt(t), inner(h.kAt(t), h.qAt(t))
			for j := range y {
				y[j] = h.scale * (out[j] + fresh*known[j])
			}
		}
		buf.giveBack()
		kept.put()
	}
}

// deltaHead is one head of one sequence.
type deltaHead struct {
	q, k, v, g, beta, y *kernels.Tensor
	head, n, size       int
	group               int // where the head's group begins in rows of q and k
	per                 int // decays of a head
	scale               float32
	s                   []float32 // the state, n rows of size
}

// deltaHeadOf is the head of a unit, the tokens of its sequence, and its state to put back.
func deltaHeadOf(c *kernels.Call, unit int) (h deltaHead, start, tokens int, kept widened) {
	beta, state := &c.Args[4], &c.Args[5]
	heads, n, size := beta.Cols, state.Dims[2], state.Dims[3]
	start, tokens, slot := c.Args[6].Segment(unit / heads)
	head := unit % heads
	kept = widen(state, slot*state.Stride+head*n*size, n*size)
	return deltaHead{
		q: &c.Args[0], k: &c.Args[1], v: &c.Args[2], g: &c.Args[3], beta: beta, y: &c.Results[0],
		head: head, n: n, size: size, group: kernels.GroupsOf(beta, &c.Args[1], n).Of(head) * n,
		per: c.Args[3].Cols / heads, scale: float32(c.Attrs.Float("scale")), s: kept.h,
	}, start, tokens, kept
}

func (h *deltaHead) qAt(t int) []float32 { return h.q.Row(t)[h.group : h.group+h.n] }
func (h *deltaHead) kAt(t int) []float32 { return h.k.Row(t)[h.group : h.group+h.n] }
func (h *deltaHead) vAt(t int) []float32 { return h.v.Row(t)[h.head*h.size : (h.head+1)*h.size] }
func (h *deltaHead) yAt(t int) []float32 { return h.y.Row(t)[h.head*h.size : (h.head+1)*h.size] }

// decays are the log decays of the rows of the state; of one decay buf has it for all.
func (h *deltaHead) decays(t int, buf []float32) []float32 {
	g := h.g.Row(t)[h.head*h.per : (h.head+1)*h.per]
	if h.per == h.n {
		return g
	}
	for i := range buf {
		buf[i] = g[0]
	}
	return buf
}

// read is Sᵀk and Sᵀq.
func (h *deltaHead) read(known, out, k, q []float32) {
	clear(known)
	clear(out)
	for i := range k {
		row := h.s[i*h.size : (i+1)*h.size]
		a, b := known[:len(row)], out[:len(row)]
		for j, v := range row {
			a[j] += v * k[i]
			b[j] += v * q[i]
		}
	}
}

// write takes a token into the state, of which it knows some. It leaves beta (v - known) there.
func (h *deltaHead) write(known, decay []float32, t int) {
	beta, v, k := h.beta.Row(t)[h.head], h.vAt(t), h.kAt(t)
	for j := range known {
		known[j] = beta * (v[j] - known[j])
	}
	for i, d := range decay {
		row := h.s[i*h.size : (i+1)*h.size]
		for j, x := range known[:len(row)] {
			row[j] = d*row[j] + k[i]*x
		}
	}
}
