package cpu

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

var _ = kernels.Register(Kernels, Experts(Kernels))

// Experts are the sums of experts by the other operations of a set: matmul multiplies the tokens of
// an expert, and the gate's function is applied to the results. Of an expert's tokens, those in
// whole blocks of prompts ([kernels.Call.Wide]) come first, and are such rows of the matmul, too.
// So a token's bits depend on its position, and not on other tokens, if those of a matmul do.
//
// All workers share each expert, and read its weights once: first for its hidden units, which are
// left in scratch memory, and then for its outputs.
func Experts(set kernels.Set) kernels.Set {
	by := experts{set}
	k := kernels.Kernel{
		Units: outputUnits, Run: by.outputs, Scratch: mixtureBytes,
		Before: &kernels.Kernel{
			Units: hiddenUnits, Run: by.hidden,
			Before: &kernels.Kernel{Units: func(*kernels.Call) int { return 1 }, Run: listTokens},
		},
	}
	return kernels.Set{"experts": k, "ungated_experts": k}
}

const (
	expertRows = 16      // of a matrix, in a unit
	gathered   = 512     // tokens that go through an expert together, at most
	anyExperts = 1 << 20 // hidden units in memory, at most, for a token to use all experts
)

// mixture is a call of experts, and what is in its scratch memory.
type mixture struct {
	*kernels.Call
	gate, up, down *kernels.Tensor // without a gate, the function is of up's product: gate is that matrix, and up nil
	size, room     int             // hidden units of an expert; experts of a token, at most

	ends, wide []int32   // of each expert: where its tokens end in the list, and how many of them are in whole blocks
	tokens     []int32   // by expert; those in whole blocks first
	units      []float32 // hidden units of these
}

// sizesOf is a mixture without its memory. The weights come from a router, which leaves the top of
// each token, but all where scores are no numbers.
func sizesOf(c *kernels.Call) mixture {
	m := mixture{Call: c, gate: &c.Args[2], down: &c.Args[len(c.Args)-1], size: c.Args[2].Dims[1], room: c.Args[1].Cols}
	if len(c.Args) == 5 {
		m.up = &c.Args[3]
	}
	if c.Args[0].Rows()*m.room*m.size > anyExperts {
		m.room = min(m.room, c.Attrs.Int("top"))
	}
	return m
}

// numbers are how many there are in the scratch memory: of lists, and of hidden units.
func (m *mixture) numbers() (lists, units int) {
	places := m.Args[0].Rows() * m.room
	return 2*m.Args[1].Cols + places, places * m.size
}

func mixtureBytes(c *kernels.Call) int {
	m := sizesOf(c)
	lists, units := m.numbers()
	return 4 * (lists + units)
}

func mixtureOf(c *kernels.Call) mixture {
	m := sizesOf(c)
	lists, units := m.numbers()
	if lists == 0 {
		return m
	}
	memory, n := unsafe.Pointer(&c.Scratch[0]), c.Args[1].Cols
	list := unsafe.Slice((*int32)(memory), lists)
	m.ends, m.wide, m.tokens = list[:n], list[n:2*n], list[2*n:]
	m.units = unsafe.Slice((*float32)(memory), lists+units)[lists:]
	return m
}

// listTokens lists the tokens of each expert.
func listTokens(c *kernels.Call, _, _ int) {
	m := mixtureOf(c)
	clear(m.ends)
	clear(m.wide)
	m.each(func(e, _ int, _ bool) { m.ends[e]++ })
	total := int32(0)
	for e, n := range m.ends {
		m.ends[e], total = total, total+n
	}
	put := func(e, t int) {
		m.tokens[m.ends[e]] = int32(t)
		m.ends[e]++
	}
	m.each(func(e, t int, wide bool) {
		if wide {
			put(e, t)
			m.wide[e]++
		}
	})
	m.each(func(e, t int, wide bool) {
		if !wide {
			put(e, t)
		}
	})
}

// each calls f with all experts of all tokens, and whether these are in whole blocks.
func (m *mixture) each(f func(e, t int, wide bool)) {
	runs := m.Wide
	for t := range m.Args[0].Rows() {
		if len(runs) > 0 && runs[0].End() <= t {
			runs = runs[1:]
		}
		wide, left := len(runs) > 0 && runs[0].Start <= t, m.room
		for e, weight := range m.Args[1].Row(t) {
			if weight != 0 && left > 0 {
				f(e, t, wide)
				left--
			}
		}
	}
}

// span is where an expert's tokens are in the list.
func (m *mixture) span(e int) (from, to int) {
	if e > 0 {
		from = int(m.ends[e-1])
	}
	return from, int(m.ends[e])
}

func outputUnits(c *kernels.Call) int { return (c.Results[0].Cols + expertRows - 1) / expertRows }

// rowUnits counts the units of an expert's hidden units.
func rowUnits(c *kernels.Call) int { return (c.Args[2].Dims[1] + expertRows - 1) / expertRows }

// hiddenUnits counts those of the experts that tokens use.
func hiddenUnits(c *kernels.Call) (n int) {
	m := mixtureOf(c)
	for e := range m.ends {
		if from, to := m.span(e); from < to {
			n += rowUnits(c)
		}
	}
	return n
}

type experts struct{ by kernels.Set }

// hidden computes hidden units, for units lo to hi of those that all experts have.
func (x experts) hidden(c *kernels.Call, lo, hi int) {
	m, per, first := mixtureOf(c), rowUnits(c), 0
	for e := range m.ends {
		from, to := m.span(e)
		if from == to {
			continue
		}
		if row, end := max(lo-first, 0)*expertRows, min((hi-first)*expertRows, m.size); row < end {
			for ; from < to; from += gathered {
				x.activate(&m, e, from, min(to, from+gathered), row, end-row)
			}
		}
		first += per
	}
}

// activate computes some hidden units of an expert from one on, times its weight, for its tokens in
// a range of the list.
func (x experts) activate(m *mixture, e, from, to, row, rows int) {
	in, n := &m.Args[0], to-from
	buf := borrow(n * (in.Cols + rows))
	tokens, ups := buf.h[:n*in.Cols], buf.h[n*in.Cols:]
	for i, t := range m.tokens[from:to] {
		copy(tokens[i*in.Cols:], in.Row(int(t)))
	}
	h := m.units[from*m.size+row:]
	p := x.product(m, e, from, to, matrixOf(tokens, n, in.Cols, in.Cols))
	p.multiply(rowsOf(m.gate, e, row, rows, in.Cols), h, m.size)
	if m.up != nil {
		p.multiply(rowsOf(m.up, e, row, rows, in.Cols), ups, rows)
	}
	p.end()
	x.apply(m.Attrs.Text("act"), matrixOf(h, n, rows, m.size))
	for i, t := range m.tokens[from:to] {
		h, weight := h[i*m.size:][:rows], m.Args[1].Row(int(t))[e]
		if m.up == nil {
			for j := range h {
				h[j] *= weight
			}
			continue
		}
		for j, u := range ups[i*rows:][:len(h)] {
			h[j] *= u * weight
		}
	}
	buf.giveBack()
}

// outputs: y = Σ_e p_e down_e (act(gate_e x) · up_e x), over the experts whose weight p_e is not 0,
// one after the other, for some columns.
func (x experts) outputs(c *kernels.Call, lo, hi int) {
	m, y := mixtureOf(c), &c.Results[0]
	col, end := min(lo*expertRows, y.Cols), min(hi*expertRows, y.Cols)
	for t := range y.Rows() {
		clear(y.Row(t)[col:end])
	}
	for e := range m.ends {
		for from, to := m.span(e); from < to && m.size > 0; from += gathered {
			x.add(&m, e, from, min(to, from+gathered), col, end-col)
		}
	}
}

// add adds columns of an expert's outputs to those of its tokens in a range of the list.
func (x experts) add(m *mixture, e, from, to, col, cols int) {
	buf := borrow((to - from) * cols)
	p := x.product(m, e, from, to, matrixOf(m.units[from*m.size:], to-from, m.size, m.size))
	p.multiply(rowsOf(m.down, e, col, cols, m.size), buf.h, cols)
	p.end()
	for i, t := range m.tokens[from:to] {
		y := m.Results[0].Row(int(t))[col:][:cols]
		for j, v := range buf.h[i*cols:][:len(y)] {
			y[j] += v
		}
	}
	buf.giveBack()
}

// matrixOf is memory as rows that are some numbers apart.
func matrixOf(memory []float32, rows, cols, stride int) kernels.Tensor {
	return kernels.Tensor{DType: graph.F32, Dims: [graph.MaxRank]int{rows, cols}, Cols: cols, Stride: stride, F32: memory}
}

// rowsOf are rows of an expert's matrix, from one on, as a matrix of their own.
func rowsOf(w *kernels.Tensor, e, from, rows, cols int) kernels.Tensor {
	t, at := *w, e*w.Stride+from*cols
	t.Dims, t.Cols, t.Stride = [graph.MaxRank]int{rows, cols}, cols, cols
	switch {
	case w.Blocks != nil:
		t.U8 = w.U8[w.Blocks.Bytes(at/cols):]
	case w.DType == graph.F32:
		t.F32 = w.F32[at:]
	default:
		t.U16 = w.U16[at:]
	}
	return t
}

// long is an attribute of a matmul whose sums are in f32 whatever their length is.
const long = "long"

var ofExperts = graph.Attrs{long: 1}

// expertProduct multiplies the tokens of an expert, in this goroutine.
type expertProduct struct {
	matmul kernels.Kernel
	call   *cutCall
	packed graph.DType // the format of weights that the scratch memory is for
	memory widened
}

// product is that of x's rows, which are tokens in a range of the list.
func (x experts) product(m *mixture, e, from, to int, rows kernels.Tensor) expertProduct {
	c := cutCalls.Get().(*cutCall)
	c.args[0] = rows
	c.Call = kernels.Call{Args: c.args[:], Results: c.results[:], Attrs: ofExperts}
	first, _ := m.span(e)
	if wide := min(first+int(m.wide[e]), to) - from; wide > 0 {
		c.wide[0] = graph.Run{Len: wide}
		c.Wide = c.wide[:]
	}
	return expertProduct{matmul: x.by["matmul"], call: c}
}

// multiply multiplies with a matrix. Tokens that were packed for one before serve as they are.
func (p *expertProduct) multiply(w kernels.Tensor, y []float32, ys int) {
	c := &p.call.Call
	c.Args[1], c.Results[0] = w, matrixOf(y, c.Args[0].Rows(), w.Rows(), ys)
	if p.memory.copy == nil || p.packed != w.DType {
		p.prepare(w.DType)
	}
	p.matmul.Run(c, 0, p.matmul.Units(c))
}

func (p *expertProduct) prepare(format graph.DType) {
	const line = 64
	c, n := &p.call.Call, 0
	if p.matmul.Scratch != nil {
		n = p.matmul.Scratch(c)
	}
	p.memory.atLeast((n + line) / 4)
	at := unsafe.Pointer(&p.memory.h[0])
	c.Scratch = unsafe.Slice((*byte)(unsafe.Add(at, -uintptr(at)&(line-1))), n)
	p.matmul.Prepare(c)
	p.packed = format
}

func (p *expertProduct) end() {
	p.memory.giveBack()
	cutCalls.Put(p.call)
}

// apply applies an operation of an element.
func (x experts) apply(op string, y kernels.Tensor) {
	c, k := cutCalls.Get().(*cutCall), x.by[op]
	c.args[0], c.results[0] = y, y
	c.Call = kernels.Call{Args: c.args[:1], Results: c.results[:]}
	k.Run(&c.Call, 0, k.Units(&c.Call))
	cutCalls.Put(c)
}
