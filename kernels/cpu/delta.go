package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, kernels.Set{
	"delta_scan": {Units: deltaUnits, Run: deltaScan},
})

// deltaUnits counts the heads of all sequences.
func deltaUnits(c *kernels.Call) int { return c.Args[6].Rows() * c.Args[4].Cols }

// deltaTokens are taken at a time, so that what is made of each stays in a cache.
const deltaTokens = 16

// deltaScan is the gated delta rule, token by token: chunks of a matrix form would take as many
// multiplications, and their bits would depend on where a prompt is cut.
func deltaScan(c *kernels.Call, lo, hi int) {
	for unit := lo; unit < hi; unit++ {
		h, start, tokens, kept := deltaHeadOf(c, unit)
		buf := borrow(3*h.n + 2*h.size)
		known, out := buf.h[3*h.n:3*h.n+h.size], buf.h[3*h.n+h.size:]
		for t := start; t < start+tokens; t++ {
			d := h.token(t, buf.h[:3*h.n])
			h.read(known, out, &d)
			h.write(known, &d, t)
			for j, x := range known {
				h.yAt(t)[j] = h.scale * (d.fade*out[j] + d.fresh*x)
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

// deltaToken is what a token does to all columns of a state.
type deltaToken struct {
	readK, readQ      []float32 // key and query, times the decays of their rows where these differ
	decay             []float32 // of each row, or of all: step is 0
	step              int
	fade, beta, fresh float32 // fade is the decay of all rows, or 1; fresh is k·q
}

// token makes one; buf has room for three numbers of each row.
func (h *deltaHead) token(t int, buf []float32) deltaToken {
	k, q, g := h.kAt(t), h.qAt(t), h.g.Row(t)[h.head*h.per:(h.head+1)*h.per]
	d := deltaToken{readK: k, readQ: q, decay: buf[:h.per], fade: 1, beta: h.beta.Row(t)[h.head], fresh: inner(k, q)}
	expInto(d.decay, g, 1)
	if h.per == 1 {
		d.fade = d.decay[0]
		return d
	}
	d.step, d.readK, d.readQ = 1, buf[h.n:2*h.n], buf[2*h.n:3*h.n]
	for i, by := range d.decay {
		d.readK[i], d.readQ[i] = by*k[i], by*q[i]
	}
	return d
}

// read is Sᵀk and Sᵀq, before fade.
func (h *deltaHead) read(known, out []float32, d *deltaToken) {
	clear(known)
	clear(out)
	for i, k := range d.readK {
		row, q := h.s[i*h.size:(i+1)*h.size], d.readQ[i]
		a, b := known[:len(row)], out[:len(row)]
		for j, v := range row {
			a[j] += v * k
			b[j] += v * q
		}
	}
}

// write takes a token into the state, of which it knows some. It leaves beta (v - known) there.
func (h *deltaHead) write(known []float32, d *deltaToken, t int) {
	v, k := h.vAt(t), h.kAt(t)
	for j := range known {
		known[j] = d.beta * (v[j] - d.fade*known[j])
	}
	for i, x := range k {
		row, by := h.s[i*h.size:(i+1)*h.size], d.decay[i*d.step]
		for j, fresh := range known[:len(row)] {
			row[j] = by*row[j] + x*fresh
		}
	}
}
