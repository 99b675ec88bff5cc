package cpu

import (
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// codedWeights are what there is for weights of a format in integer products: what unpacks 8 rows,
// and what multiplies 16 with 1, 2, … tokens.
type codedWeights struct {
	unpack func(to, from *byte, ws, blocks, ahead int)
	dots   []func(panel *byte, apart int, x *byte, xs int, sums *float32, blocks int)
	bytes  int // of 32 elements of 8 rows in a panel
}

type integerDots = []func(panel *byte, apart int, x *byte, xs int, sums *float32, blocks int)

// integerDepth is how many elements of k are unpacked at a time: with their scales, 16 rows of them
// fit the first cache beside the tokens.
const integerDepth = 1024

var (
	dotFours  = integerDots{dotFoursx1AVX2, dotFoursx2AVX2, dotFoursx3AVX2}
	dotFives  = integerDots{dotFivesx1AVX2, dotFivesx2AVX2}
	dotSixes  = integerDots{dotSixesx1AVX2, dotSixesx2AVX2}
	dotEights = integerDots{dotEightsx1AVX2, dotEightsx2AVX2}

	codedAVX2 = map[graph.DType]codedWeights{
		graph.Q8:   {unpackQ8AVX2, dotEights, 320},
		graph.Q4_0: {unpackQ4x0AVX2, dotFours, 320}, graph.Q4_1: {unpackQ4x1AVX2, dotFours, 320},
		graph.Q5_0: {unpackQ5x0AVX2, dotFives, 320}, graph.Q5_1: {unpackQ5x1AVX2, dotFives, 320},
		graph.IQ4_NL: {unpackIQ4NLAVX2, dotEights, 320}, graph.IQ4_XS: {unpackIQ4XSAVX2, dotEights, 320},
		graph.Q4_K: {unpackQ4KAVX2, dotFours, 320}, graph.Q5_K: {unpackQ5KAVX2, dotFives, 320},
		graph.Q6_K: {unpackQ6KAVX2, dotSixes, 384},
	}

	integersAVX2 = integers{round: roundAVX2, multiply: multiplyPanels}
)

func init() {
	for name, p := range map[string]products{"avx2": productsAVX2, "avx512": productsAVX512} {
		p.integers = &integersAVX2
		integerProducts[name] = func(set kernels.Set) {
			p.integers.into(set)
			for _, op := range []string{"experts", "ungated_experts"} {
				set[op] = kernels.Kernel{Units: expertUnits, Run: p.experts}
			}
		}
	}
}

func roundAVX2(to []byte, x []float32) {
	roundBlocksAVX2(&to[0], &x[0], len(x)/roundedLen)
}

// multiplyPanels unpacks 16 rows, some of k at a time, and takes all tokens past them.
func multiplyPanels(m integerProduct) {
	with, f := codedAVX2[m.format], m.format.Format()
	depth := integerDepth / f.Elems
	_, _, _ = m.w[(m.rows-1)*m.ws+m.count*f.Bytes-1], m.x[(m.tokens-1)*m.xs+m.count*f.Elems/roundedLen*roundedBytes-1], m.y[(m.tokens-1)*m.ys+m.rows-1] // the assembly checks no bounds
	apart, rest := depth*f.Elems/roundedLen*with.bytes, 8*depth*f.Bytes
	totals := borrow(len(with.dots) * integerRows)
	buf, memory := borrowBytes(2*apart + rest)
	for r := 0; r < m.rows; r += integerRows {
		for from := 0; from < m.count; from += depth {
			n := min(depth, m.count-from)
			for half := 0; half < integerRows && r+half < m.rows; half += 8 {
				to, w, ws := &memory[half/8*apart], m.w[(r+half)*m.ws+from*f.Bytes:], m.ws
				if rows := m.rows - r - half; rows < 8 {
					w, ws = m.copied(memory[2*apart:], w, rows, n*f.Bytes), n*f.Bytes
				}
				ahead := integerRows * m.ws
				if from+n < m.count {
					ahead = n * f.Bytes
				}
				with.unpack(to, &w[0], ws, n, ahead)
			}
			m.pass(&with, memory, apart, totals.h, r, from, n)
		}
	}
	buf.giveBack()
	totals.giveBack()
}

// copied are fewer than 8 rows of some bytes, and zeros.
func (m *integerProduct) copied(to, w []byte, rows, bytes int) []byte {
	to = to[:8*bytes]
	for i := range rows {
		copy(to[i*bytes:][:bytes], w[i*m.ws:])
	}
	clear(to[rows*bytes:])
	return to
}

// pass multiplies the panels of 16 rows from r on, of n blocks from one on, with all tokens. Of 8
// rows or fewer there is one panel, which then counts as both.
func (m *integerProduct) pass(with *codedWeights, panel []byte, apart int, sums []float32, r, from, n int) {
	elems := m.format.Format().Elems
	rows := min(integerRows, m.rows-r)
	if rows <= 8 {
		apart = 0
	}
	for t, tokens := 0, 0; t < m.tokens; t += tokens {
		tokens = min(len(with.dots), m.tokens-t)
		for i := range tokens {
			to := sums[i*integerRows:][:rows]
			if clear(to); m.more || from > 0 {
				copy(to, m.y[(t+i)*m.ys+r:])
			}
		}
		x := &m.x[t*m.xs+from*elems/roundedLen*roundedBytes]
		with.dots[tokens-1](&panel[0], apart, x, m.xs, &sums[0], n*elems/roundedLen)
		for i := range tokens {
			copy(m.y[(t+i)*m.ys+r:][:rows], sums[i*integerRows:])
		}
	}
}

// multiplyIntegers is multiplyBlocks with activations rounded to 8 bits.
func (p *products) multiplyIntegers(m *product) {
	b := m.w.Blocks
	line, col := m.at/b.Cols, m.at%b.Cols
	first, count, bytes := integersOf(b, col, m.k)
	stride, size := b.Bytes(1), b.Format.Bytes
	w := m.w.U8[line*stride+first*size : (line+m.rows-1)*stride+(first+count)*size]
	buf, x := borrowBytes(min(blockTokens, m.tokens) * bytes)
	for t := 0; t < m.tokens; t += blockTokens {
		n := min(blockTokens, m.tokens-t)
		p.integers.roundTokens(x, m.x[t*m.xs:], m.xs, m.k, n, b, col)
		p.integers.multiply(integerProduct{
			format: m.w.DType, w: w, ws: stride, rows: m.rows, count: count,
			x: x[:n*bytes], xs: bytes, tokens: n, y: m.y[t*m.ys:], ys: m.ys, more: m.more,
		})
	}
	buf.giveBack()
}
