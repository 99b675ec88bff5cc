package cpu

import (
	"github.com/krait-ml/krait/kernels"
)

var (
	_ = kernels.Register(avx2, productsAVX2.kernels(&shortAVX2))
	_ = kernels.Register(avx512, productsAVX512.kernels(&shortAVX512))
)

// kernels are the operations that are products of rows.
func (p *products) kernels(short *shortProducts) kernels.Set {
	return kernels.Set{
		"matmul":    {Units: p.units, Run: byDepth(short.matmul, p.matmul), Before: p.panels.before(), Scratch: p.panels.scratch},
		"head_down": {Units: headUnits, Run: p.heads},
		"head_up":   {Units: headUnits, Run: p.heads},
		"experts":   {Units: expertUnits, Run: p.experts},

		"ungated_experts": {Units: expertUnits, Run: p.experts},
	}
}

// matmulGrid cuts the columns of the result into groups of rows of the weight.
func matmulGrid(c *kernels.Call) grid {
	return gridOf((c.Args[1].Rows()+groupRows-1)/groupRows, c.Args[0].Rows())
}

func (p *products) units(c *kernels.Call) int {
	switch w := &c.Args[1]; {
	case w.Cols < kernels.ShortDepth && w.Blocks == nil:
		return matmulUnits(c)
	case p.panels.serve(c):
		return p.panelGrid(c).units()
	}
	return matmulGrid(c).units()
}

// matmul is x wᵀ.
func (p *products) matmul(c *kernels.Call, lo, hi int) {
	if p.panels.serve(c) {
		p.matmulInPanels(c, lo, hi)
		return
	}
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	matmulGrid(c).each(lo, hi, func(from, to, first, last int) {
		from, to = from*groupRows, min(to*groupRows, w.Rows())
		p.multiply(&product{
			w: w, at: from * w.Stride, ws: w.Stride, rows: to - from, k: w.Cols,
			x: x.F32[first*x.Stride:], xs: x.Stride, tokens: last - first,
			y: y.F32[first*y.Stride+from:], ys: y.Stride,
		})
	})
}

// headSizes are the channels and the results of a head, the first head of which the rank
// has results, and how many there are.
func headSizes(c *kernels.Call) (size, each, first, n int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	if y.Cols == 0 {
		return
	}
	size = max(1, w.Cols)
	each = y.Full / (x.Full / size)
	first = y.Start() / each
	return size, each, first, (y.Start()+y.Cols-1)/each - first + 1
}

func headUnits(c *kernels.Call) int {
	_, _, _, n := headSizes(c)
	return gridOf(n, c.Args[0].Rows()).units()
}

// heads: y[t, h n] = Σ_k w[h n, k] x[t, h k], of what the rank has of the head's channels.
func (p *products) heads(c *kernels.Call, lo, hi int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	size, each, first, n := headSizes(c)
	gridOf(n, x.Rows()).each(lo, hi, func(from, to, token, last int) {
		for h := first + from; h < first+to; h++ {
			j, end := max(0, h*each-y.Start()), min(y.Cols, (h+1)*each-y.Start())
			k, held := kernels.Held(x, h*size, size)
			row, _ := w.HeldRow(y.Start() + j)
			p.multiply(&product{
				w: w, at: row*w.Stride + x.Start() + k - h*size, ws: w.Stride, rows: end - j, k: held - k,
				x: x.F32[token*x.Stride+k:], xs: x.Stride, tokens: last - token,
				y: y.F32[token*y.Stride+j:], ys: y.Stride,
			})
		}
	})
}

// expertTokens is how many tokens a unit has: of few, half, and the more the less often
// weights are read.
func expertTokens(c *kernels.Call) int { return max(1, min(c.Args[0].Rows()/2, 32)) }

func expertUnits(c *kernels.Call) int {
	return (c.Args[0].Rows() + expertTokens(c) - 1) / expertTokens(c)
}

// gathered is how many tokens go through an expert together, at most.
const gathered = 128

// experts: y = Σ_e p_e down_e (act(gate_e x) · up_e x), over the experts whose weight p_e
// is not 0: an expert for all of its tokens, and then the next.
func (p *products) experts(c *kernels.Call, lo, hi int) {
	x, y := &c.Args[0], &c.Results[0]
	depth := min(blockDepth, c.Args[2].Dims[1])
	end := min(hi*expertTokens(c), x.Rows())
	for t := lo * expertTokens(c); t < end; t += gathered {
		n := min(gathered, end-t)
		buf := borrow(n * (x.Cols + y.Cols + 2*depth))
		rest := buf.h
		part := func(size int) (part []float32) {
			part, rest = rest[:n*size], rest[n*size:]
			return part
		}
		s := &some{call: c, in: part(x.Cols), out: part(y.Cols), gate: part(depth), up: part(depth)}
		for i := t; i < t+n; i++ {
			clear(y.Row(i))
		}
		for e := range c.Args[1].Cols {
			if s.gather(e, t, t+n); s.n > 0 && depth > 0 {
				p.expert(s, e)
			}
		}
		buf.giveBack()
	}
}

// some are the tokens of an expert, and what they become.
type some struct {
	call              *kernels.Call
	n                 int
	tokens            [gathered]int
	in, gate, up, out []float32
}

// gather takes those tokens of a range that use an expert.
func (s *some) gather(e, from, to int) {
	x, p := &s.call.Args[0], &s.call.Args[1]
	s.n = 0
	for t := from; t < to; t++ {
		if p.Row(t)[e] != 0 {
			copy(s.in[s.n*x.Cols:], x.Row(t))
			s.tokens[s.n] = t
			s.n++
		}
	}
}

// expert adds the output of an expert, times its weight, to the result of its tokens. The
// hidden units go in blocks.
func (p *products) expert(s *some, e int) {
	weights, y := &s.call.Args[1], &s.call.Results[0]
	gate, up, down := mixture(s.call)
	hidden, width := gate.Dims[1], s.call.Args[0].Cols
	act := gates[s.call.Attrs.Text("act")]
	for from := 0; from < hidden; from += blockDepth {
		n := min(blockDepth, hidden-from)
		m := product{ws: width, rows: n, k: width, x: s.in, xs: width, tokens: s.n, ys: n}
		m.w, m.at, m.y = gate, e*gate.Stride+from*width, s.gate
		p.multiply(&m)
		if up != nil {
			m.w, m.at, m.y = up, e*up.Stride+from*width, s.up
			p.multiply(&m)
		}
		for i, t := range s.tokens[:s.n] {
			h, weight := s.gate[i*n:][:n], weights.Row(t)[e]
			if act(h, h); up == nil {
				for j := range h {
					h[j] *= weight
				}
				continue
			}
			for j, u := range s.up[i*n:][:n] {
				h[j] *= u * weight
			}
		}
		p.multiply(&product{w: down, at: e*down.Stride + from, ws: hidden, rows: y.Cols, k: n, x: s.gate, xs: n, tokens: s.n, y: s.out, ys: y.Cols, more: from > 0})
	}
	for i, t := range s.tokens[:s.n] {
		out := s.out[i*y.Cols:]
		for j := range y.Row(t) {
			y.F32[t*y.Stride+j] += out[j]
		}
	}
}
