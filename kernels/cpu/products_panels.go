//go:build amd64 || arm64

package cpu

import (
	"math/bits"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// panels are what an instruction set has for products of many tokens: weights are packed
// into panels that stay in a core's cache, and many tokens go past each. The sums are
// those of tiles, to the last bit; see the generator in gen.
type panels struct {
	lanes      int
	most       int                     // bytes of packed tokens that go past a panel at a time
	multiply   [panelVectors]panelTile // with 1, 2, … vectors of rows
	packRows   func(to, from *float32, ws, steps, apart, width int)
	packBF16   func(to *float32, from *uint16, ws, steps, apart, width int) // nil: they are widened first
	packTokens func(to, from *float32, xs, steps, apart int)
	drain      func(y *float32, ys int, sums *float32, width, tokens, cols, more int)

	tokens, depth int // that are worth panels, at least
}

type panelTile func(w, x, sums *float32, steps, groups, adds, apart int, ahead uintptr, lines, step int)

const (
	panelVectors = 3  // of rows, in a panel
	panelParts   = 8  // of the lanes, each summed by itself
	panelLevels  = 4  // sums of 1, 2, 4 and 8 parts
	tokenGroup   = 4  // tokens that are packed together
	panelTokens  = 64 // are worth panels
)

// serve reports whether matmul goes through panels.
func (p *panels) serve(c *kernels.Call) bool {
	w := &c.Args[1]
	return p != nil && c.Args[0].Rows() >= p.tokens && w.Cols >= p.depth && w.Blocks == nil
}

// blocks is how many tokens go past a panel at a time, and how often there are as many.
func (p *panels) blocks(tokens, k int) (size, n int) {
	n = (4*tokens*mostDepth(k) + p.most - 1) / p.most
	size = (tokens + n*tokenGroup - 1) / (n * tokenGroup) * tokenGroup
	return size, (tokens + size - 1) / size
}

// packed is how many numbers packed tokens are.
func (p *panels) packed(tokens, k int) int {
	return groupsOf(tokens) * tokenGroup * ((k + p.lanes - 1) / p.lanes * p.lanes)
}

func groupsOf(tokens int) int { return (tokens + tokenGroup - 1) / tokenGroup }

// before packs the tokens of matmul into the scratch memory, a block after the other.
func (p *panels) before() *kernels.Kernel {
	return &kernels.Kernel{
		Units: func(c *kernels.Call) int {
			if !p.serve(c) {
				return 0
			}
			return groupsOf(c.Args[0].Rows())
		},
		Run: func(c *kernels.Call, lo, hi int) {
			x, k := &c.Args[0], c.Args[1].Cols
			for lo < hi {
				size, _ := p.blocks(x.Rows(), k)
				t := lo * tokenGroup / size * size
				n := min(size, x.Rows()-t)
				end := min(hi, t/tokenGroup+groupsOf(n))
				p.pack(p.block(c, t), x.F32[t*x.Stride:], x.Stride, n, k, lo-t/tokenGroup, end-t/tokenGroup)
				lo = end
			}
		},
	}
}

func (p *panels) scratch(c *kernels.Call) int {
	if !p.serve(c) {
		return 0
	}
	return 4 * p.packed(c.Args[0].Rows(), c.Args[1].Cols)
}

// block is the scratch memory from the block on that begins with a token.
func (p *panels) block(c *kernels.Call, t int) []float32 {
	all := unsafe.Slice((*float32)(unsafe.Pointer(&c.Scratch[0])), p.packed(c.Args[0].Rows(), c.Args[1].Cols))
	return all[p.packed(t, c.Args[1].Cols):]
}

// pack packs groups of tokens, of a block of them: blocks of k one after the other.
func (p *panels) pack(to, x []float32, xs, tokens, k, lo, hi int) {
	most := mostDepth(k)
	buf := borrow(tokenGroup * most)
	for from := 0; from < k; from += most {
		depth := min(most, k-from)
		steps := (depth + p.lanes - 1) / p.lanes
		long, each := steps*p.lanes, steps*p.lanes/panelParts*tokenGroup
		to := to[groupsOf(tokens)*tokenGroup*from:]
		for g := lo; g < hi; g++ {
			t := g * tokenGroup
			rows, stride := x[t*xs+from:], xs
			if n := min(tokenGroup, tokens-t); n < tokenGroup || depth < long {
				rows, stride = buf.h, long
				clear(buf.h[:tokenGroup*long])
				for i := range n {
					copy(buf.h[i*long:], x[(t+i)*xs+from:][:depth])
				}
			}
			p.packTokens(&to[g*each], &rows[0], stride, steps, groupsOf(tokens)*each)
		}
	}
	buf.giveBack()
}

// panelGrid cuts the columns of matmul into panels, and the tokens into blocks.
func (p *products) panelGrid(c *kernels.Call) grid {
	size, blocks := p.panels.blocks(c.Args[0].Rows(), c.Args[1].Cols)
	width := p.lanes * panelVectors
	return grid{(c.Args[1].Rows() + width - 1) / width, blocks, blocks * size}
}

// matmulInPanels computes units lo to hi: for a block of tokens, panels.
func (p *products) matmulInPanels(c *kernels.Call, lo, hi int) {
	x, w, y := &c.Args[0], &c.Args[1], &c.Results[0]
	size, _ := p.panels.blocks(x.Rows(), w.Cols)
	width := p.lanes * panelVectors
	p.panelGrid(c).each(lo, hi, func(from, to, t, _ int) {
		from, to = from*width, min(to*width, w.Rows())
		p.panelsOf(&product{
			w: w, at: from * w.Stride, ws: w.Stride, rows: to - from, k: w.Cols,
			tokens: min(size, x.Rows()-t), y: y.F32[t*y.Stride+from:], ys: y.Stride,
		}, p.panels.block(c, t))
	})
}

// inPanels is multiply for many tokens.
func (p *products) inPanels(m *product) {
	size, _ := p.panels.blocks(m.tokens, m.k)
	buf := borrow(p.panels.packed(size, m.k))
	for t := 0; t < m.tokens; t += size {
		some := *m
		some.x, some.y, some.tokens = m.x[t*m.xs:], m.y[t*m.ys:], min(size, m.tokens-t)
		p.panels.pack(buf.h, some.x, m.xs, some.tokens, m.k, 0, groupsOf(some.tokens))
		p.panelsOf(&some, buf.h)
	}
	buf.giveBack()
}

// packing is a product on its way through panels, a block of k after the other.
type packing struct {
	product
	with        *products
	set         *panels
	from, depth int // of k
	steps       int // vectors of k
	packed      []float32
	panel, sums []float32
	rest        []float32 // where rows that fill no vectors are padded
}

// panelsOf multiplies packed tokens.
func (p *products) panelsOf(m *product, packed []float32) {
	most, width := mostDepth(m.k), p.lanes*panelVectors

	buf := borrow(width*most + p.lanes*most + panelLevels*groupsOf(m.tokens)*tokenGroup*width)
	s := packing{product: *m, with: p, set: p.panels, panel: buf.h[:width*most], rest: buf.h[width*most:][:p.lanes*most], sums: buf.h[(width+p.lanes)*most:]}
	for s.from = 0; s.from < m.k; s.from += s.depth {
		s.depth = min(most, m.k-s.from)
		s.steps = (s.depth + p.lanes - 1) / p.lanes
		s.packed = packed[groupsOf(m.tokens)*tokenGroup*s.from:]
		for r := 0; r < m.rows; r += width {
			s.multiply(r, min(width, m.rows-r))
		}
	}
	buf.giveBack()
}

// multiply multiplies n rows from row r on with the tokens.
func (s *packing) multiply(r, n int) {
	lanes := s.set.lanes
	vectors, groups := (n+lanes-1)/lanes, groupsOf(s.tokens)
	width := vectors * lanes
	part := s.steps * lanes / panelParts
	apart, each := part*width, groups*part*tokenGroup
	for v := range vectors {
		s.packRows(s.panel[v*lanes:], r+v*lanes, min(lanes, n-v*lanes), apart, width)
	}
	level := groups * tokenGroup * width
	here, next := s.after(r + n)
	quarter := next / ((panelParts - 1) * groups * 4)
	for i := range panelParts {
		adds := bits.TrailingZeros(^uint(i))
		ahead, lines, step := here, 0, 0
		switch {
		case i == panelParts-1:
			ahead, lines, step = uintptr(unsafe.Pointer(&s.y[r])), (width+15)/16, 4*s.ys
		case next > 0:
			ahead, lines, step = here+uintptr(i*groups*quarter*4), (quarter+63)/64, quarter
		}
		s.set.multiply[vectors-1](&s.panel[i*apart], &s.packed[i*each], &s.sums[0], s.steps, groups, adds, level, ahead, lines, step)
	}
	more := 0
	if s.from > 0 {
		more = 1
	}
	sums := s.sums[(panelLevels-1)*level:]
	s.set.drain(&s.y[r], s.ys, &sums[0], width, s.tokens, n, more)
}

// after is where weights lie that come after the panel before row r, and how many bytes.
func (s *packing) after(r int) (at uintptr, bytes int) {
	n := min(s.set.lanes*panelVectors, s.product.rows-r)
	if n <= 0 {
		return 0, 0
	}
	first := s.at + r*s.ws
	if s.w.DType == graph.F32 {
		return uintptr(unsafe.Pointer(&s.w.F32[first])), 4 * n * s.ws
	}
	return uintptr(unsafe.Pointer(&s.w.U16[first])), 2 * n * s.ws
}

// packRows writes a vector of rows, of which n are there, to the panel.
func (s *packing) packRows(to []float32, r, n, apart, width int) {
	at, lanes := s.at+r*s.ws+s.from, s.set.lanes
	long := s.steps * lanes
	from, ws := s.rest, long
	switch whole := n == lanes && s.depth == long; {
	case whole && s.w.DType == graph.F32:
		from, ws = s.w.F32[at:], s.ws
	case whole && s.w.DType == graph.BF16 && s.set.packBF16 != nil:
		s.set.packBF16(&to[0], &s.w.U16[at], s.ws, s.steps, apart, width)
		return
	default:
		clear(s.rest[n*long : lanes*long])
		for i := range n {
			row := s.rest[i*long:][:long]
			s.with.read(&s.product, row[:s.depth], at+i*s.ws)
			clear(row[s.depth:])
		}
	}
	s.set.packRows(&to[0], &from[0], ws, s.steps, apart, width)
}
