//go:build amd64 || arm64

package cpu

import "github.com/krait-ml/krait/graph"

// blockWeights are what there is for weights in a block format: tiles of 4 rows with 1, 2, …
// tokens, and what widens whole blocks, in the order into which spread brings
// activations; without spread it is theirs.
type blockWeights struct {
	tiles  []tile[byte]
	widen  func(to *float32, from *byte, n int)
	spread func(to, from *float32, n int)
}

// read widens n blocks.
func (b *blockWeights) read(d graph.DType, to []float32, from []byte, n int) {
	if b.widen != nil {
		b.widen(&to[0], &from[0], n)
		return
	}
	d.Decode(to[:n*d.Format().Elems], from)
}

const (
	blockTokens = 192 // that are spread at a time, at most
	widenedRows = 64  // of weights in blocks, at a time, so that they stay in the second cache with the tokens
)

// multiplyBlocks computes a product with weights in blocks. Those that the weights' columns
// touch are multiplied whole, with zeros where they have what is not asked for.
func (p *products) multiplyBlocks(m *product) {
	fillScales()
	b, with := m.w.Blocks, p.blocks[m.w.DType]
	if m.ws != b.Cols {
		panic("BUG: a product with lines of blocks that are not side by side")
	}
	line, col := m.at/b.Cols, m.at%b.Cols
	first, count := touched(b, col, m.k)
	part, stride, size := *m, b.Bytes(1), b.Format.Bytes
	part.k, part.ws = count*b.Format.Elems, stride
	w := m.w.U8[line*stride+first*size : (line+m.rows-1)*stride+(first+count)*size]
	if with.spread == nil && part.k == m.k {
		p.sweepBlocks(&part, &with, w)
		return
	}
	part.xs = part.k
	buf := borrow(min(blockTokens, m.tokens) * part.k)
	for t := 0; t < m.tokens; t += part.tokens {
		part.tokens = min(blockTokens, m.tokens-t)
		part.x, part.y = buf.h, m.y[t*m.ys:]
		for i := range part.tokens {
			to := part.x[i*part.k:][:part.k]
			x := lay(to, m.x[(t+i)*m.xs:][:m.k], b, col, first)
			if with.spread != nil {
				with.spread(&to[0], &x[0], count)
			}
		}
		p.sweepBlocks(&part, &with, w)
	}
	buf.giveBack()
}

// sweepBlocks multiplies whole blocks, of rows that are m.ws bytes apart.
func (p *products) sweepBlocks(m *product, with *blockWeights, w []byte) {
	_, _ = m.x[(m.tokens-1)*m.xs+m.k-1], m.y[(m.tokens-1)*m.ys+m.rows-1] // the assembly checks no bounds
	format := m.w.Blocks.Format
	s := sweepOf(p, m, w)
	s.most = format.Count(s.most) * format.Elems
	direct := m.tokens <= len(with.tiles)
	var buf widened
	for s.panel() {
		for s.block() {
			n, count := 0, s.depth/format.Elems
			at := s.r*m.ws + s.from/format.Elems*format.Bytes
			if direct {
				n = s.n / groupRows * groupRows
				pass(&s, with.tiles, groupRows, w[at:], m.ws, s.r, n)
			}
			if n == s.n {
				continue
			}
			buf.atLeast(min(widenedRows, s.n-n) * s.most)
			for n < s.n {
				rows := min(widenedRows, s.n-n)
				for i := range rows {
					with.read(m.w.DType, buf.h[i*s.most:], w[at+(n+i)*m.ws:], count)
				}
				s.wide(buf.h, s.most, s.r+n, rows)
				n += rows
			}
		}
	}
	buf.giveBack()
}
