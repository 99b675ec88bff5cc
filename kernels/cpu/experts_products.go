//go:build amd64 || arm64

package cpu

import (
	"maps"
	"unsafe"

	"github.com/krait-ml/krait/kernels"
)

// expertKernels are the sums of experts. Of few tokens all workers share each expert: first its
// hidden units, which are left in scratch memory, and then its outputs. Of many, a unit is some
// tokens.
func (p *products) expertKernels() kernels.Set {
	k := kernels.Kernel{
		Units: expertUnits, Run: p.experts, Scratch: hiddenBytes,
		Before: &kernels.Kernel{Units: hiddenUnits, Run: p.hidden},
	}
	return kernels.Set{"experts": k, "ungated_experts": k}
}

// withIntegers returns what puts integer products, also of experts, into a set.
func (p products) withIntegers(i *integers) func(set kernels.Set) {
	p.integers = i
	return func(set kernels.Set) {
		i.into(set)
		maps.Copy(set, p.expertKernels())
	}
}

const (
	fewTokens  = 16  // that all workers share
	expertRows = 16  // of a matrix, in a unit of few tokens
	gathered   = 128 // tokens that go through an expert together, at most
)

// expertTokens is how many of many tokens a unit has: half, and the more the less often
// weights are read.
func expertTokens(c *kernels.Call) int { return min(c.Args[0].Rows()/2, 32) }

func expertUnits(c *kernels.Call) int {
	tokens, each := c.Args[0].Rows(), expertTokens(c)
	if tokens > fewTokens {
		return (tokens + each - 1) / each
	}
	return (c.Results[0].Cols + expertRows - 1) / expertRows
}

// hiddenBytes is the memory of the hidden units of few tokens, for all experts.
func hiddenBytes(c *kernels.Call) int {
	if c.Args[0].Rows() > fewTokens {
		return 0
	}
	return 4 * c.Args[0].Rows() * c.Args[1].Cols * c.Args[2].Dims[1]
}

// hiddenUnits counts the units of the experts that few tokens use.
func hiddenUnits(c *kernels.Call) int {
	n := 0
	for e := nextUsed(c, 0); e >= 0 && c.Args[0].Rows() <= fewTokens; e = nextUsed(c, e+1) {
		n += rowUnits(c)
	}
	return n
}

// rowUnits counts the units of an expert's hidden units.
func rowUnits(c *kernels.Call) int { return (c.Args[2].Dims[1] + expertRows - 1) / expertRows }

// nextUsed is the first expert from one on that a token uses; -1: there is none.
func nextUsed(c *kernels.Call, e int) int {
	for p := &c.Args[1]; e < p.Cols; e++ {
		for t := range p.Rows() {
			if p.Row(t)[e] != 0 {
				return e
			}
		}
	}
	return -1
}

// some are the tokens of an expert, and what they become.
type some struct {
	call        *kernels.Call
	n           int
	tokens      [gathered]int
	in, up, out []float32
}

// find finds those tokens of a range that use an expert.
func (s *some) find(e, from, to int) {
	s.n = 0
	for t := from; t < to; t++ {
		if s.call.Args[1].Row(t)[e] != 0 {
			s.tokens[s.n] = t
			s.n++
		}
	}
}

// gather copies those tokens of a range that use an expert.
func (s *some) gather(e, from, to int) {
	x := &s.call.Args[0]
	s.find(e, from, to)
	for i, t := range s.tokens[:s.n] {
		copy(s.in[i*x.Cols:], x.Row(t))
	}
}

// hidden computes hidden units of few tokens, for units lo to hi of those that all experts have.
func (p *products) hidden(c *kernels.Call, lo, hi int) {
	x, size, per := &c.Args[0], c.Args[2].Dims[1], rowUnits(c)
	buf := borrow(x.Rows() * (x.Cols + size))
	s := &some{call: c, in: buf.h[:x.Rows()*x.Cols], up: buf.h[x.Rows()*x.Cols:]}
	for e, first := nextUsed(c, 0), 0; first < hi; e, first = nextUsed(c, e+1), first+per {
		from, to := max(lo-first, 0), min(hi-first, per)
		if from >= to {
			continue
		}
		s.gather(e, 0, x.Rows())
		r := from * expertRows
		p.activate(s, e, r, min(to*expertRows, size)-r, hiddenOf(c, e, r), size)
	}
	buf.giveBack()
}

// hiddenOf is the scratch memory of an expert's hidden units from one on, of its first token.
func hiddenOf(c *kernels.Call, e, from int) []float32 {
	tokens, size := c.Args[0].Rows(), c.Args[2].Dims[1]
	all := unsafe.Slice((*float32)(unsafe.Pointer(&c.Scratch[0])), hiddenBytes(c)/4)
	return all[e*tokens*size+from:]
}

// experts: y = Σ_e p_e down_e (act(gate_e x) · up_e x), over the experts whose weight p_e
// is not 0: an expert for all of its tokens, and then the next.
func (p *products) experts(c *kernels.Call, lo, hi int) {
	x, y, size := &c.Args[0], &c.Results[0], c.Args[2].Dims[1]
	if x.Rows() <= fewTokens {
		p.outputs(c, min(lo*expertRows, y.Cols), min(hi*expertRows, y.Cols))
		return
	}
	depth, end := min(blockDepth, size), min(hi*expertTokens(c), x.Rows())
	for t := lo * expertTokens(c); t < end; t += gathered {
		n := min(gathered, end-t)
		buf := borrow(n * (x.Cols + y.Cols + 2*depth))
		rest := buf.h
		part := func(size int) (part []float32) {
			part, rest = rest[:n*size], rest[n*size:]
			return part
		}
		s := &some{call: c, in: part(x.Cols), out: part(y.Cols), up: part(depth)}
		for i := t; i < t+n; i++ {
			clear(y.Row(i))
		}
		for e := 0; e < c.Args[1].Cols && size > 0; e++ {
			if s.gather(e, t, t+n); s.n == 0 {
				continue
			}
			for from := 0; from < size; from += depth {
				some := min(depth, size-from)
				p.activate(s, e, from, some, rest, some)
				p.down(s, e, from, some, rest, some, 0, y.Cols)
			}
			s.add(0, y.Cols)
		}
		buf.giveBack()
	}
}

// outputs computes columns of the result for few tokens.
func (p *products) outputs(c *kernels.Call, col, end int) {
	y, size := &c.Results[0], c.Args[2].Dims[1]
	buf := borrow(y.Rows() * (end - col))
	s := &some{call: c, out: buf.h}
	for t := range y.Rows() {
		clear(y.Row(t)[col:end])
	}
	for e := nextUsed(c, 0); e >= 0 && size > 0; e = nextUsed(c, e+1) {
		s.find(e, 0, y.Rows())
		for from := 0; from < size; from += blockDepth {
			p.down(s, e, from, min(blockDepth, size-from), hiddenOf(c, e, from), size, col, end-col)
		}
		s.add(col, end-col)
	}
	buf.giveBack()
}

// activate computes n hidden units of an expert from one on, times its weight, for its tokens,
// whose units are apart numbers apart.
func (p *products) activate(s *some, e, from, n int, h []float32, apart int) {
	gate, up, _ := mixture(s.call)
	weights, width := &s.call.Args[1], s.call.Args[0].Cols
	m := product{w: gate, at: e*gate.Stride + from*width, ws: width, rows: n, k: width, x: s.in, xs: width, tokens: s.n, y: h, ys: apart}
	p.multiply(&m)
	if up != nil {
		m.w, m.at, m.y, m.ys = up, e*up.Stride+from*width, s.up, n
		p.multiply(&m)
	}
	act := gates[s.call.Attrs.Text("act")]
	for i, t := range s.tokens[:s.n] {
		h, weight := h[i*apart:][:n], weights.Row(t)[e]
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
}

// down computes columns of an expert's outputs from n hidden units from one on, and adds them to
// those from the units before.
func (p *products) down(s *some, e, from, n int, h []float32, apart, col, cols int) {
	gate, _, down := mixture(s.call)
	size := gate.Dims[1]
	p.multiply(&product{
		w: down, at: e*down.Stride + col*size + from, ws: size, rows: cols, k: n,
		x: h, xs: apart, tokens: s.n, y: s.out, ys: cols, more: from > 0,
	})
}

// add adds the outputs to columns of the result of the expert's tokens.
func (s *some) add(col, cols int) {
	for i, t := range s.tokens[:s.n] {
		out := s.out[i*cols:]
		for j := range s.call.Results[0].Row(t)[col : col+cols] {
			s.call.Results[0].Row(t)[col+j] += out[j]
		}
	}
}
