package cpu

import "github.com/krait-ml/krait/graph"

// codedProducts are the integer products of an instruction set.
type codedProducts struct {
	lanes   int // rows of a panel
	depth   int // elements of k that are unpacked at a time: two panels of them fit the first cache
	weights map[graph.DType]codedWeights
}

// codedWeights are what there is for weights of a format in integer products: for one token, what
// multiplies 8 rows at a time; for several, what unpacks the rows of a panel, and what multiplies
// two panels with 1, 2, … tokens, or nil.
type codedWeights struct {
	single func(w *byte, ws, apart int, x *byte, y *float32, ys, blocks, groups int)
	unpack func(to, from *byte, ws, blocks, ahead int)
	dots   integerDots
	bytes  int // of a block in a panel
}

type integerDots = []func(panel *byte, apart int, x *byte, xs int, sums *float32, blocks int)

// integerGroup is how many rows are multiplied with one token at a time.
const integerGroup = 8

var (
	dotFours  = integerDots{dotFoursx1AVX2, dotFoursx2AVX2, dotFoursx3AVX2}
	dotFives  = integerDots{dotFivesx1AVX2, dotFivesx2AVX2}
	dotEights = integerDots{dotEightsx1AVX2, dotEightsx2AVX2}

	dotSuperFours  = integerDots{dotSuperFoursx1AVX2, dotSuperFoursx2AVX2, dotSuperFoursx3AVX2}
	dotSuperFives  = integerDots{dotSuperFivesx1AVX2, dotSuperFivesx2AVX2, dotSuperFivesx3AVX2}
	dotSuperSixes  = integerDots{dotSuperSixesx1AVX2, dotSuperSixesx2AVX2, dotSuperSixesx3AVX2}
	dotSuperEights = integerDots{dotSuperEightsx1AVX2, dotSuperEightsx2AVX2}

	codedAVX2 = codedProducts{8, 1024, map[graph.DType]codedWeights{
		graph.Q8:     {singleQ8AVX2, unpackQ8AVX2, dotEights, 288},
		graph.Q4_0:   {singleQ4x0AVX2, unpackQ4x0AVX2, dotFours, 320},
		graph.Q4_1:   {singleQ4x1AVX2, unpackQ4x1AVX2, dotFours, 320},
		graph.Q5_0:   {singleQ5x0AVX2, unpackQ5x0AVX2, dotFives, 320},
		graph.Q5_1:   {singleQ5x1AVX2, unpackQ5x1AVX2, dotFives, 320},
		graph.IQ4_NL: {singleIQ4NLAVX2, unpackIQ4NLAVX2, dotEights, 288},
		graph.IQ4_XS: {singleIQ4XSAVX2, unpackIQ4XSAVX2, dotSuperEights, 2336},
		graph.Q4_K:   {singleQ4KAVX2, unpackQ4KAVX2, dotSuperFours, 2496},
		graph.Q5_K:   {singleQ5KAVX2, unpackQ5KAVX2, dotSuperFives, 2496},
		graph.Q6_K:   {singleQ6KAVX2, unpackQ6KAVX2, dotSuperSixes, 2848},
	}}
)

// Those of AVX-512 with VNNI have AVX2's bits: sums of blocks are exact, and others in one order.
var (
	dotCodesVNNI       = integerDots{dotCodesx1VNNI, dotCodesx2VNNI, nil, nil, nil, dotCodesx6VNNI}
	dotEightsVNNI      = integerDots{dotEightsx1VNNI, dotEightsx2VNNI, nil, nil, nil, dotEightsx6VNNI}
	dotSuperCodesVNNI  = integerDots{dotSuperCodesx1VNNI, dotSuperCodesx2VNNI, nil, nil, nil, dotSuperCodesx6VNNI}
	dotSuperSixesVNNI  = integerDots{dotSuperSixesx1VNNI, dotSuperSixesx2VNNI, nil, nil, nil, dotSuperSixesx6VNNI}
	dotSuperLevelsVNNI = integerDots{dotSuperLevelsx1VNNI, dotSuperLevelsx2VNNI, nil, nil, nil, dotSuperLevelsx6VNNI}

	codedVNNI = codedProducts{16, 512, map[graph.DType]codedWeights{
		graph.Q8:     {singleQ8AVX2, unpackQ8VNNI, dotEightsVNNI, 576},
		graph.Q4_0:   {singleQ4x0AVX2, unpackQ4x0VNNI, dotCodesVNNI, 640},
		graph.Q4_1:   {singleQ4x1AVX2, unpackQ4x1VNNI, dotCodesVNNI, 640},
		graph.Q5_0:   {singleQ5x0AVX2, unpackQ5x0VNNI, dotCodesVNNI, 640},
		graph.Q5_1:   {singleQ5x1AVX2, unpackQ5x1VNNI, dotCodesVNNI, 640},
		graph.IQ4_NL: {singleIQ4NLAVX2, unpackIQ4NLVNNI, dotEightsVNNI, 576},
		graph.IQ4_XS: {singleIQ4XSAVX2, unpackIQ4XSVNNI, dotSuperLevelsVNNI, 4928},
		graph.Q4_K:   {singleQ4KAVX2, unpackQ4KVNNI, dotSuperCodesVNNI, 4992},
		graph.Q5_K:   {singleQ5KAVX2, unpackQ5KVNNI, dotSuperCodesVNNI, 4992},
		graph.Q6_K:   {singleQ6KAVX2, unpackQ6KVNNI, dotSuperSixesVNNI, 5696},
	}}
)

func init() {
	integerProducts["avx2"] = &integers{2 * codedAVX2.lanes, roundAVX2, codedAVX2.multiply}
	wide := integerProducts["avx2"] // of AVX-512 the oldest processors have no VNNI
	if hasVNNI() {
		wide = &integers{2 * codedVNNI.lanes, roundAVX2, codedVNNI.multiply}
	}
	for _, name := range []string{"avx512", "avx512_bf16", "amx"} {
		integerProducts[name] = wide
	}
}

func roundAVX2(to []byte, x []float32, elems int) {
	if elems == 32 {
		round32BlocksAVX2(&to[0], &x[0], len(x)/32)
	} else {
		round256BlocksAVX2(&to[0], &x[0], len(x)/256)
	}
}

func (p *codedProducts) multiply(m integerProduct) {
	f := m.format.Format()
	_, _, _ = m.w[(m.rows-1)*m.ws+m.count*f.Bytes-1], m.x[(m.tokens-1)*m.xs+m.count*roundedBytes(f.Elems)-1], m.y[(m.tokens-1)*m.ys+m.rows-1] // the assembly checks no bounds
	with := p.weights[m.format]
	if m.tokens == 1 {
		m.multiplySingle(&with)
		return
	}
	sums := borrow(m.tokens * 2 * p.lanes)
	buf, memory := borrowBytes(p.panelBytes(&m, &with) + p.lanes*p.depth/f.Elems*f.Bytes)
	for r := 0; r < m.rows; r += 2 * p.lanes {
		p.multiplyPanels(&m, &with, memory, sums.h, r)
	}
	buf.giveBack()
	sums.giveBack()
}

// multiplySingle takes rows from where they are past one token.
func (m *integerProduct) multiplySingle(with *codedWeights) {
	clear(m.y[:m.rows])
	size := m.count * m.format.Format().Bytes
	groups, rest := m.rows/integerGroup, m.rows%integerGroup
	if groups > 0 {
		with.single(&m.w[0], m.ws, groups*m.ws, &m.x[0], &m.y[0], groups, m.count, groups) // each from a part of its own
	}
	if rest == 0 {
		return
	}
	buf, memory := borrowBytes(integerGroup * size)
	w := m.copied(memory, m.w[groups*integerGroup*m.ws:], integerGroup, rest, size)
	var sums [integerGroup]float32
	y := m.y[groups*integerGroup:][:rest]
	copy(sums[:], y)
	with.single(&w[0], size, size, &m.x[0], &sums[0], 1, m.count, 1)
	copy(y, sums[:])
	buf.giveBack()
}

// panelBytes is the size of two panels.
func (p *codedProducts) panelBytes(m *integerProduct, with *codedWeights) int {
	return 2 * p.depth / m.format.Format().Elems * with.bytes
}

// multiplyPanels takes all tokens past the rows of two panels from one on, which it unpacks some of
// k at a time.
func (p *codedProducts) multiplyPanels(m *integerProduct, with *codedWeights, memory []byte, sums []float32, r int) {
	f := m.format.Format()
	depth, apart, all := p.depth/f.Elems, p.panelBytes(m, with)/2, 2*p.lanes
	rows := min(all, m.rows-r)
	clear(sums[:m.tokens*all])
	for from := 0; from < m.count; from += depth {
		n := min(depth, m.count-from)
		for half := 0; half < rows; half += p.lanes {
			to, w, ws := &memory[half/p.lanes*apart], m.w[(r+half)*m.ws+from*f.Bytes:], m.ws
			if rows := rows - half; rows < p.lanes {
				w, ws = m.copied(memory[2*apart:], w, p.lanes, rows, n*f.Bytes), n*f.Bytes
			}
			ahead := all * m.ws
			if from+n < m.count {
				ahead = n * f.Bytes
			}
			with.unpack(to, &w[0], ws, n, ahead)
		}
		between := apart
		if rows <= p.lanes {
			between = 0 // the first panel counts as both
		}
		for t, tokens := 0, 0; t < m.tokens; t += tokens {
			for tokens = min(len(with.dots), m.tokens-t); with.dots[tokens-1] == nil; tokens-- {
			}
			with.dots[tokens-1](&memory[0], between, &m.x[t*m.xs+from*roundedBytes(f.Elems)], m.xs, &sums[t*all], n)
		}
	}
	for t := range m.tokens {
		copy(m.y[t*m.ys+r:][:rows], sums[t*all:])
	}
}

// copied are fewer rows than there must be, of some bytes, and zeros.
func (m *integerProduct) copied(to, w []byte, all, rows, bytes int) []byte {
	to = to[:all*bytes]
	for i := range rows {
		copy(to[i*bytes:][:bytes], w[i*m.ws:])
	}
	clear(to[rows*bytes:])
	return to
}
