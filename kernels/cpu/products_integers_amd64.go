package cpu

import "github.com/krait-ml/krait/graph"

// codedWeights are what there is for weights of a format in integer products: for one token, what
// multiplies 8 rows at a time; for several, what unpacks 8 rows, and what multiplies 16 with 1, 2,
// … tokens.
type codedWeights struct {
	single func(w *byte, ws, apart int, x *byte, y *float32, ys, blocks, groups int)
	unpack func(to, from *byte, ws, blocks, ahead int)
	dots   integerDots
	bytes  int // of a block of 8 rows in a panel
}

type integerDots = []func(panel *byte, apart int, x *byte, xs int, sums *float32, blocks int)

const (
	// integerDepth is how many elements of k are unpacked at a time: with their scales, 16 rows of
	// them fit the first cache beside the tokens.
	integerDepth = 1024
	// integerGroup is how many rows are multiplied with one token at a time.
	integerGroup = 8
)

var (
	dotFours  = integerDots{dotFoursx1AVX2, dotFoursx2AVX2, dotFoursx3AVX2}
	dotFives  = integerDots{dotFivesx1AVX2, dotFivesx2AVX2}
	dotEights = integerDots{dotEightsx1AVX2, dotEightsx2AVX2}

	dotSuperFours  = integerDots{dotSuperFoursx1AVX2, dotSuperFoursx2AVX2, dotSuperFoursx3AVX2}
	dotSuperFives  = integerDots{dotSuperFivesx1AVX2, dotSuperFivesx2AVX2, dotSuperFivesx3AVX2}
	dotSuperSixes  = integerDots{dotSuperSixesx1AVX2, dotSuperSixesx2AVX2, dotSuperSixesx3AVX2}
	dotSuperEights = integerDots{dotSuperEightsx1AVX2, dotSuperEightsx2AVX2}

	codedAVX2 = map[graph.DType]codedWeights{
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
	}

	integersAVX2 = integers{round: roundAVX2, multiply: multiplyCodedAVX2}
)

func init() {
	for _, name := range []string{"avx2", "avx512", "avx512_bf16", "amx"} {
		integerProducts[name] = &integersAVX2
	}
}

func roundAVX2(to []byte, x []float32, elems int) {
	if elems == 32 {
		round32BlocksAVX2(&to[0], &x[0], len(x)/32)
	} else {
		round256BlocksAVX2(&to[0], &x[0], len(x)/256)
	}
}

func multiplyCodedAVX2(m integerProduct) {
	f := m.format.Format()
	_, _, _ = m.w[(m.rows-1)*m.ws+m.count*f.Bytes-1], m.x[(m.tokens-1)*m.xs+m.count*roundedBytes(f.Elems)-1], m.y[(m.tokens-1)*m.ys+m.rows-1] // the assembly checks no bounds
	if m.tokens == 1 {
		multiplySingle(m)
	} else {
		multiplyPanels(m)
	}
}

// multiplySingle takes rows from where they are past one token.
func multiplySingle(m integerProduct) {
	clear(m.y[:m.rows])
	single, size := codedAVX2[m.format].single, m.count*m.format.Format().Bytes
	groups, rest := m.rows/integerGroup, m.rows%integerGroup
	if groups > 0 {
		single(&m.w[0], m.ws, groups*m.ws, &m.x[0], &m.y[0], groups, m.count, groups) // each from a part of its own
	}
	if rest == 0 {
		return
	}
	buf, memory := borrowBytes(integerGroup * size)
	w := m.copied(memory, m.w[groups*integerGroup*m.ws:], rest, size)
	var sums [integerGroup]float32
	y := m.y[groups*integerGroup:][:rest]
	copy(sums[:], y)
	single(&w[0], size, size, &m.x[0], &sums[0], 1, m.count, 1)
	copy(y, sums[:])
	buf.giveBack()
}

// multiplyPanels unpacks 16 rows, some of k at a time, and takes all tokens past them.
func multiplyPanels(m integerProduct) {
	with, f := codedAVX2[m.format], m.format.Format()
	depth := integerDepth / f.Elems
	apart, rest := depth*with.bytes, 8*depth*f.Bytes
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
	size := roundedBytes(m.format.Format().Elems)
	rows := min(integerRows, m.rows-r)
	if rows <= 8 {
		apart = 0
	}
	for t, tokens := 0, 0; t < m.tokens; t += tokens {
		tokens = min(len(with.dots), m.tokens-t)
		for i := range tokens {
			to := sums[i*integerRows:][:rows]
			if clear(to); from > 0 {
				copy(to, m.y[(t+i)*m.ys+r:])
			}
		}
		x := &m.x[t*m.xs+from*size]
		with.dots[tokens-1](&panel[0], apart, x, m.xs, &sums[0], n)
		for i := range tokens {
			copy(m.y[(t+i)*m.ys+r:][:rows], sums[i*integerRows:])
		}
	}
}
