//go:build amd64 || arm64

package cpu

import (
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// products are what an instruction set has for sums of products, by the format of the
// weights. The order of a sum is the same in all of them.
type products struct {
	lanes     int
	fewPasses int             // of 16-bit weights, for which widening them each time costs less than a buffer
	row       []tile[float32] // of a row of weights with 1, 2, … tokens
	f32       []tile[float32] // of 4 rows
	one       stream[float32]
	bf16, f16 narrow
	blocks    map[graph.DType]blockWeights
	panels    *panels // nil: all tokens go through tiles
}

// weight is what weights are made of in memory; of blocks, bytes.
type weight interface{ float32 | uint16 | byte }

// tile multiplies rows of weights with rows of x; see the generator in gen.
type tile[E weight] func(w *E, ws int, x *float32, xs int, y *float32, ys, k, groups int, ahead uintptr, apart, step int, next uintptr, near int)

// narrow is what there is for weights of 16 bits: tiles of 4 rows for whole vectors, and
// what widens whole vectors.
type narrow struct {
	tiles []tile[uint16]
	widen func(to *float32, from *uint16, n int)
	one   stream[uint16]
}

// stream multiplies one token with rows of weights that are far apart; see the generator in gen. A
// set without one has nil.
type stream[E weight] func(w *E, ws, apart int, x *float32, y *float32, ys, k, depth, groups int)

// multiply multiplies one token with as many rows as fill groups, and returns what is left. A group
// has a row of each quarter of the rows, and so memory is read in four long runs.
func (s stream[E]) multiply(m *product, w []E) (product, []E) {
	groups := m.rows / groupRows
	if s == nil || m.tokens > 1 || groups == 0 {
		return *m, w
	}
	rows, rest := groups*groupRows, *m
	m.clear(0, 1, 0, rows)
	s(&w[0], m.ws, groups*m.ws, &m.x[0], &m.y[0], groups, m.k, mostDepth(m.k), groups)
	if rest.rows -= rows; rest.rows > 0 {
		rest.at, rest.y, w = rest.at+rows*m.ws, m.y[rows:], w[rows*m.ws:]
	}
	return rest, w
}

// product is y = x wᵀ. Rows of w, x and y are ws, xs and ys elements apart; those of w begin at an
// element of the weight.
type product struct {
	w               *kernels.Tensor
	at, ws, rows, k int
	x               []float32
	xs, tokens      int
	y               []float32
	ys              int
}

const (
	groupRows  = 4        // of weights, in a tile
	blockDepth = 1024     // of k, at most, that is summed at a time: with 6 tokens it fits a core's first cache
	firstPanel = 16 << 10 // weights: of the panel that nothing fetches ahead
	smallPanel = 32 << 10 // for few passes, of what comes from memory meanwhile
	largePanel = 1 << 18  // for many passes, of what stays in the second cache
	manyPasses = 8
)

// multiply computes a product. The sum of an element is taken in blocks of k, whose
// lengths depend on k only.
func (p *products) multiply(m *product) {
	if m.rows == 0 || m.tokens == 0 {
		return
	}
	if m.k == 0 {
		m.clear(0, m.tokens, 0, m.rows)
		return
	}
	if m.w.Blocks != nil {
		p.multiplyBlocks(m)
		return
	}
	m.check()
	if p.panels != nil && m.tokens >= panelTokens {
		p.inPanels(m)
		return
	}
	switch m.w.DType {
	case graph.F32:
		p.multiplyF32(m, m.w.F32[m.at:])
	case graph.BF16:
		p.multiply16(m, m.w.U16[m.at:], &p.bf16)
	case graph.F16:
		p.multiply16(m, m.w.U16[m.at:], &p.f16)
	default:
		panic("BUG: a product with a weight in " + m.w.DType.String())
	}
}

// check looks at the last elements, since assembly checks no bounds.
func (m *product) check() {
	last := m.at + (m.rows-1)*m.ws + m.k - 1
	if m.w.DType == graph.F32 {
		_ = m.w.F32[last]
	} else {
		_ = m.w.U16[last]
	}
	_, _ = m.x[(m.tokens-1)*m.xs+m.k-1], m.y[(m.tokens-1)*m.ys+m.rows-1]
}

// clear makes n columns from r on zero, for some tokens from t on.
func (m *product) clear(t, tokens, r, n int) {
	for i := t; i < t+tokens; i++ {
		clear(m.y[i*m.ys+r:][:n])
	}
}

func (p *products) multiplyF32(m *product, w []float32) {
	rest, w := p.one.multiply(m, w)
	for s := sweepOf(p, &rest, w); s.panel(); {
		for s.block() {
			s.wide(w[s.r*m.ws+s.from:], m.ws, s.r, s.n)
		}
	}
}

// multiply16 widens weights in the tiles, or into a buffer: for many tokens, and what
// does not fill vectors or groups.
func (p *products) multiply16(m *product, w []uint16, f *narrow) {
	rest := *m
	if m.k%p.lanes == 0 {
		rest, w = f.one.multiply(m, w)
		m = &rest
	}
	s := sweepOf(p, m, w)
	direct := s.passes <= p.fewPasses && m.k%p.lanes == 0
	var buf widened
	for s.panel() {
		for s.block() {
			n := 0
			if direct {
				n = s.n / groupRows * groupRows
				pass(&s, f.tiles, groupRows, w[s.r*m.ws+s.from:], m.ws, s.r, n)
			}
			if n == s.n {
				continue
			}
			buf.atLeast((s.n - n) * s.most)
			for i := n; i < s.n; i++ {
				f.read(m.w, buf.h[(i-n)*s.most:][:s.depth], m.at+(s.r+i)*m.ws+s.from, p.lanes)
			}
			s.wide(buf.h, s.most, s.r+n, s.n-n)
		}
	}
	buf.giveBack()
}

// read widens weights from one on.
func (f *narrow) read(w *kernels.Tensor, to []float32, at, lanes int) {
	n := len(to) / lanes * lanes
	if n > 0 {
		f.widen(&to[0], &w.U16[at], n)
	}
	w.Read(to[n:], at+n)
}

// read widens weights of a row.
func (p *products) read(m *product, to []float32, at int) {
	switch m.w.DType {
	case graph.BF16:
		p.bf16.read(m.w, to, at, p.lanes)
	case graph.F16:
		p.f16.read(m.w, to, at, p.lanes)
	default:
		copy(to, m.w.F32[at:])
	}
}

// sweep is the way of a product over the weights: panels of rows, of which each block of
// k goes past all tokens, some at a time.
type sweep struct {
	*products
	*product
	passes int
	start  uintptr // of the weights in memory
	size   int     // bytes of a weight
	most   int     // of k, in a block

	r, n        int // the panel: n rows from r on
	from, depth int // the block: depth elements of k from one on
	ahead       fetch
}

// fetch is what tiles fetch ahead, the panel that comes next: four lines that are apart
// bytes apart, and step bytes on for each vector of k. Four places give more bytes per
// second than one does: a third more on Sapphire Rapids.
type fetch struct {
	at, end     uintptr
	apart, step int
}

func sweepOf[E weight](p *products, m *product, w []E) sweep {
	return sweep{
		products: p, product: m,
		passes: (m.tokens + len(p.f32) - 1) / len(p.f32),
		start:  uintptr(unsafe.Pointer(&w[0])), size: int(unsafe.Sizeof(w[0])),
		most: mostDepth(m.k),
	}
}

// mostDepth is that of the blocks of k.
func mostDepth(k int) int {
	const vector = 16 // a block begins at one, in all instruction sets
	blocks := (k + blockDepth - 1) / blockDepth
	return (k + vector*blocks - 1) / (vector * blocks) * vector
}

// panel goes on to the next panel.
func (s *sweep) panel() bool {
	s.r += s.n
	s.n = s.rowsFrom(s.r)
	s.from, s.depth, s.ahead = 0, 0, fetch{}
	next := s.r + s.n
	if bytes := s.rowsFrom(next) * s.ws * s.size; bytes > 0 {
		quarter := (bytes/4 + 63) &^ 63
		vectors := s.passes * (s.n + groupRows - 1) / groupRows * (s.k + s.lanes - 1) / s.lanes
		at := s.start + uintptr(next*s.ws*s.size)
		s.ahead = fetch{at, at + uintptr(quarter), quarter, max(8, (quarter+vectors-1)/vectors)}
	}
	return s.n > 0
}

// rowsFrom is how many rows the panel from row r has.
func (s *sweep) rowsFrom(r int) int {
	weights := smallPanel
	if s.passes > manyPasses {
		weights = largePanel
	}
	weights = min(weights, firstPanel+r*s.k)
	return min(s.rows-r, max(1, weights/(groupRows*s.k))*groupRows)
}

// block goes on to the panel's next block.
func (s *sweep) block() bool {
	s.from += s.depth
	s.depth = min(s.most, s.k-s.from)
	return s.depth > 0
}

// wide multiplies a block of n rows of f32 from row r on.
func (s *sweep) wide(w []float32, ws, r, n int) {
	whole := n / groupRows * groupRows
	pass(s, s.f32, groupRows, w, ws, r, whole)
	if whole < n {
		pass(s, s.row, 1, w[whole*ws:], ws, r+whole, n-whole)
	}
}

// pass multiplies a block of n rows from row r on with all tokens, by tiles of some rows.
func pass[E weight](s *sweep, tiles []tile[E], rows int, w []E, ws, r, n int) {
	groups, tokens := n/rows, 0
	for t := 0; groups > 0 && t < s.tokens; t += tokens {
		tokens = min(len(tiles), s.tokens-t)
		if s.from == 0 {
			s.clear(t, tokens, r, n)
		}
		x := &s.x[t*s.xs+s.from]
		here := uintptr(unsafe.Pointer(x))
		f := fetch{at: here} // that which is there costs nothing
		if s.ahead.at < s.ahead.end {
			f = s.ahead
			s.ahead.at += uintptr(groups * s.depth / s.lanes * f.step)
		}
		near := 0
		if t+tokens < s.tokens {
			near = (4*s.depth/groups + 63) &^ 63
		}
		tiles[tokens-1](&w[0], ws, x, s.xs, &s.y[t*s.ys+r], s.ys, s.depth, groups, f.at, f.apart, f.step, here+uintptr(4*tokens*s.xs), near)
	}
}
