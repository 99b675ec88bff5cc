package cpu

import (
	"sync"

	"github.com/krait-ml/krait/graph"
	"github.com/x448/float16"
	"golang.org/x/sys/cpu"
)

// blockWeights are what there is for weights in blocks: tiles of 4 rows with 1, 2, …
// tokens, and what widens whole blocks, in the order into which spread brings
// activations; without spread it is theirs.
type blockWeights struct {
	tiles  []tile[byte]
	widen  func(to *float32, from *byte, n int)
	spread func(to, from *float32, n int)
}

var (
	blocksAVX2   = blockWeights{widen: widenBlocksAVX2}
	blocksAVX512 = blockWeights{[]tile[byte]{gemmQ8x4x1AVX512, gemmQ8x4x2AVX512, gemmQ8x4x3AVX512, gemmQ8x4x4AVX512, gemmQ8x4x5AVX512, gemmQ8x4x6AVX512}, widenBlocksAVX512, spreadBlocksAVX512}
)

// blocksWide is for AVX-512, of which the oldest processors do not have all.
func blocksWide() blockWeights {
	if cpu.X86.HasAVX512VNNI {
		return blocksAVX512
	}
	return blocksAVX2
}

// blockScales has for each f16 what it is in f32, and that times -3·2²², once fillScales
// was called.
var (
	blockScales [1 << 16][2]float32
	fillScales  = sync.OnceFunc(func() {
		for i := range blockScales {
			s := float16.Frombits(uint16(i)).Float32()
			blockScales[i] = [2]float32{s, s * (-3 << 22)}
		}
	})
)

const (
	blockTokens = 192 // that are spread at a time, at most
	widenedRows = 64  // of weights in blocks, at a time, so that they stay in the second cache with the tokens
)

// multiplyBlocks computes a product with weights in blocks. Those that the weights' columns
// touch are multiplied whole, with zeros where they have what is not asked for.
func (p *products) multiplyBlocks(m *product) {
	fillScales()
	b := m.w.Blocks
	if m.ws != b.Cols {
		panic("BUG: a product with lines of blocks that are not side by side")
	}
	line, col := m.at/b.Cols, m.at%b.Cols
	first, count := touched(b, col, m.k)
	part, stride := *m, b.Bytes(1)
	part.k, part.ws = count*graph.BlockLen, stride
	w := m.w.Q8[line*stride+first*graph.BlockBytes : (line+m.rows-1)*stride+(first+count)*graph.BlockBytes]
	if p.blocks.spread == nil && part.k == m.k {
		p.sweepBlocks(&part, w)
		return
	}
	part.xs = part.k
	buf := borrow(min(blockTokens, m.tokens) * part.k)
	for t := 0; t < m.tokens; t += part.tokens {
		part.tokens = min(blockTokens, m.tokens-t)
		part.x, part.y = buf.h, m.y[t*m.ys:]
		for i := range part.tokens {
			p.spread(part.x[i*part.k:][:part.k], m.x[(t+i)*m.xs:][:m.k], b, col, first)
		}
		p.sweepBlocks(&part, w)
	}
	buf.giveBack()
}

// touched are the blocks of a line that have its elements from col on.
func touched(b *graph.Blocks, col, n int) (first, count int) {
	end := 0
	for i, s := range b.Spans {
		if s.Len > 0 && s.At <= col {
			first = b.Spans[i].Block + (s.Lead+col-s.At)/graph.BlockLen
		}
		if s.Len > 0 && s.At < col+n {
			end = s.Block + (s.Lead+min(s.Len, col+n-s.At)-1)/graph.BlockLen + 1
		}
	}
	return first, end - first
}

// spread lays activations of the elements from col on as they lie in blocks, of which
// the first is one of a line.
func (p *products) spread(to, x []float32, b *graph.Blocks, col, first int) {
	from := x
	if len(to) != len(x) {
		clear(to)
		for _, s := range b.Spans {
			lo, hi := max(s.At, col), min(s.At+s.Len, col+len(x))
			if lo < hi {
				copy(to[(s.Block-first)*graph.BlockLen+s.Lead+lo-s.At:], x[lo-col:hi-col])
			}
		}
		from = to
	}
	if p.blocks.spread != nil {
		p.blocks.spread(&to[0], &from[0], len(to)/graph.BlockLen)
	}
}

// sweepBlocks multiplies whole blocks, of rows that are m.ws bytes apart.
func (p *products) sweepBlocks(m *product, w []byte) {
	_, _ = m.x[(m.tokens-1)*m.xs+m.k-1], m.y[(m.tokens-1)*m.ys+m.rows-1] // the assembly checks no bounds
	s := sweepOf(p, m, w)
	s.most = (s.most + graph.BlockLen - 1) &^ (graph.BlockLen - 1)
	direct := m.tokens <= len(p.blocks.tiles)
	var buf widened
	for s.panel() {
		for s.block() {
			n, count := 0, s.depth/graph.BlockLen
			at := s.r*m.ws + s.from/graph.BlockLen*graph.BlockBytes
			if direct {
				n = s.n / groupRows * groupRows
				pass(&s, p.blocks.tiles, groupRows, w[at:], m.ws, s.r, n)
			}
			if n == s.n {
				continue
			}
			buf.atLeast(min(widenedRows, s.n-n) * s.most)
			for n < s.n {
				rows := min(widenedRows, s.n-n)
				for i := range rows {
					p.blocks.widen(&buf.h[i*s.most], &w[at+(n+i)*m.ws], count)
				}
				s.wide(buf.h, s.most, s.r+n, rows)
				n += rows
			}
		}
	}
	buf.giveBack()
}
