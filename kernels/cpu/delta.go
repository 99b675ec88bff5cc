package cpu

import "github.com/krait-ml/krait/kernels"

var _ = kernels.Register(Kernels, plainDelta.kernels())

// deltaRule has the steps of the gated delta rule for a token, over rows of a state that are row
// elements apart.
type deltaRule struct {
	negExp func(y, x []float32)
	// read adds Σ k[i] s[i] to known and Σ q[i] s[i] to out.
	read func(s []float32, row int, known, out, k, q []float32)
	// value makes of what is known beta (v - fade known), and y = scale (fade out + fresh times that).
	value func(known, y, v, out []float32, d *deltaToken, scale float32)
	// write sets s[i] = decay[i·step] s[i] + k[i] x.
	write func(s []float32, row int, x, k []float32, d *deltaToken)
}

var plainDelta = deltaRule{negExp, readDelta, valueDelta, writeDelta}

func (r *deltaRule) kernels() kernels.Set {
	return kernels.Set{"delta_scan": {Units: deltaUnits, Run: r.scan}}
}

// deltaUnits counts the heads of all sequences.
func deltaUnits(c *kernels.Call) int { return c.Args[6].Rows() * c.Args[4].Cols }

const (
	deltaTokens  = 64 // that pass a block of columns before the next block
	deltaLeast   = 4  // tokens for which a block is taken out of its state
	deltaColumns = 64 // of a block, which fits the nearest cache with 128 rows
)

// scan goes token by token.
func (r *deltaRule) scan(c *kernels.Call, lo, hi int) {
	for unit := lo; unit < hi; unit++ {
		h, start, tokens, kept := deltaHeadOf(c, unit)
		h.deltaRule = r
		h.steps(start, tokens)
		kept.put()
	}
}

// steps takes the head past tokens, one by one.
func (h *deltaHead) steps(start, tokens int) {
	for t := start; t < start+tokens && h.n > 0 && h.size > 0; t += deltaTokens {
		h.some(t, min(deltaTokens, start+tokens-t))
	}
}

// deltaHead is one head of one sequence.
type deltaHead struct {
	*deltaRule
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
func (h *deltaHead) gAt(t int) []float32 { return h.g.Row(t)[h.head*h.per : (h.head+1)*h.per] }
func (h *deltaHead) vAt(t int) []float32 { return h.v.Row(t)[h.head*h.size : (h.head+1)*h.size] }
func (h *deltaHead) yAt(t int) []float32 { return h.y.Row(t)[h.head*h.size : (h.head+1)*h.size] }

// some takes the head past a few tokens: many of them block by block of columns.
func (h *deltaHead) some(t, tokens int) {
	block := h.size
	if tokens >= deltaLeast {
		block = min(block, deltaColumns)
	}
	buf := borrow(tokens*3*h.n + h.n*block + 2*block)
	defer buf.giveBack()
	var list [deltaTokens]deltaToken
	for i := range tokens {
		list[i] = h.token(t+i, buf.h[i*3*h.n:(i+1)*3*h.n])
	}
	s, rest := buf.h[tokens*3*h.n:][:h.n*block], buf.h[tokens*3*h.n+h.n*block:]
	for col := 0; col < h.size; col += block {
		n, row := min(block, h.size-col), block
		if block < h.size {
			for i := range h.n {
				copy(s[i*block:i*block+n], h.s[i*h.size+col:])
			}
		} else {
			s, row = h.s, h.size
		}
		known, out := rest[:n], rest[block:block+n]
		for i := range tokens {
			d := &list[i]
			clear(known)
			clear(out)
			h.read(s, row, known, out, d.readK, d.readQ)
			h.value(known, h.yAt(t + i)[col:col+n], h.vAt(t + i)[col:], out, d, h.scale)
			h.write(s, row, known, h.kAt(t+i), d)
		}
		for i := 0; block < h.size && i < h.n; i++ {
			copy(h.s[i*h.size+col:], s[i*block:i*block+n])
		}
	}
}

// deltaToken is what a token does to all columns of a state.
type deltaToken struct {
	readK, readQ      []float32 // key and query, times the decays of their rows where these differ
	decay             []float32 // of each row, or of all: step is 0
	step              int
	fade, beta, fresh float32 // fade is the decay of all rows, or 1; fresh is k·q
}

// token makes one; buf has room for three numbers of each row.
func (h *deltaHead) token(t int, buf []float32) deltaToken {
	k, q, g := h.kAt(t), h.qAt(t), h.gAt(t)
	d := deltaToken{readK: k, readQ: q, decay: buf[:h.per], fade: 1, beta: h.beta.Row(t)[h.head], fresh: inner(k, q)}
	h.negExp(d.decay, g)
	if h.per == 1 {
		d.decay[0] = -d.decay[0]
		d.fade = d.decay[0]
		return d
	}
	d.step, d.readK, d.readQ = 1, buf[h.n:2*h.n], buf[2*h.n:3*h.n]
	for i, by := range d.decay {
		d.decay[i], d.readK[i], d.readQ[i] = -by, -by*k[i], -by*q[i]
	}
	return d
}

func readDelta(s []float32, row int, known, out, keys, queries []float32) {
	for i, k := range keys {
		line, q := s[i*row:][:len(known)], queries[i]
		out := out[:len(line)]
		for j, v := range line {
			known[j] += v * k
			out[j] += v * q
		}
	}
}

func valueDelta(known, y, v, out []float32, d *deltaToken, scale float32) {
	for j := range known {
		known[j] = d.beta * (v[j] - d.fade*known[j])
		y[j] = scale * (d.fade*out[j] + d.fresh*known[j])
	}
}

func writeDelta(s []float32, row int, x, keys []float32, d *deltaToken) {
	for i, k := range keys {
		line, by := s[i*row:][:len(x)], d.decay[i*d.step]
		for j, fresh := range x {
			line[j] = by*line[j] + k*fresh
		}
	}
}
