package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Where things are in what multiply works with (amxWork).
const (
	workScale  = 64 // of each tile of tokens
	workLeast  = workScale + 64
	workSums   = workScale + 2*128
	workTotals = workSums + 4*1024
	workTail   = workTotals + 4*1024
	workPlan   = workTail + 2048
)

// plan is the numbers of amxWork, in its order.
var plan = []string{"k", "n", "ys", "pairs", "rows", "apart", "next", "second", "row", "fetch", "quarter", "stride", "behind", "left", "later"}

// blockSteps is after how many steps of 32 elements sums begin anew: sums in f32 lose the
// more digits the longer they are.
const blockSteps = 16

// runSteps is how many steps before they are wanted the lines of runs are fetched.
const runSteps = 8

// aheadSteps is how many steps before they are loaded copied weights and tokens are fetched from
// the L2 cache to L1; 0: they are not.
const aheadSteps = 2

// manyLines is how many lines a step fetches from each of four places, if not one.
const manyLines = 8

// multiply is the product of weights with one or two tiles of up to 16 tokens. Tile 2t + h has the
// sums of half h of the rows with tile t of the tokens; 4 and 5 are the weights, 6 and 7 parts of
// x. Sums do not depend on the form:
//
//   - Packed weights are pairs of tiles, for two of tokens: twelve products are made of eight
//     loads. Those in f32 have three parts, too. Of the products of parts six count, and three are
//     below what a sum in f32 has.
//   - Runs are rows as they lie in memory, one tile at a time, which has a row of each of 16 long
//     runs; the next one has the rows behind these. So memory that no cache has is read in long
//     runs, each row once.
type multiply struct {
	tiles
	weights, parts int // of weights, and of x
	tokens         int // tiles
	halves         int // 1: runs
}

func (m *multiply) runs() bool { return m.halves == 1 }

// fetches is what a step fetches of what comes after these weights.
type fetches struct {
	places  []reg.Register // two of four; the others are quarter bytes behind
	quarter reg.Register
	lines   int // from each of the four places
}

// The registers of the machine that tile instructions name.
var (
	work         = reg.RDX
	upper, lower = reg.RSI, reg.RDI                  // the first 16 rows, and the second
	apart        = reg.RBX                           // bytes from a row of a tile of weights to the next
	packed       = []reg.GPPhysical{reg.R8, reg.R10} // parts of x
	row          = reg.R9                            // bytes from a row of theirs to the next
	line         = reg.R12                           // 64
	result       = reg.RAX                           // the next to fetch
)

func (m *multiply) function() {
	name, weights := fmt.Sprintf("amxPacked%d", m.parts), "packed weights"
	switch {
	case m.runs():
		name, weights = fmt.Sprintf("amxRuns%dx%d", m.parts, m.tokens), "runs of weights"
	case m.weights > 1:
		name, weights = "amxPackedF32", "packed weights of f32"
	}
	function(m.Context, name, "(work *byte, w *uint16, x *byte, y *float32) (odd uint32)",
		fmt.Sprintf("%s multiplies %s with tokens packed in %d parts and %d tiles, as the work says.", name, weights, m.parts, m.tokens),
		"Bits of odd stand for tokens of whose results some are not finite or less than the least.")
	m.Load(m.Param("work"), work)
	m.config(work)
	m.MOVQ(m.slot("apart"), apart)
	m.MOVQ(U32(64), line)
	m.MOVL(U32(0), m.memory(m.Return("odd")))
	m.MOVQ(line, row)
	if m.tokens == 1 {
		m.MOVQ(m.slot("row"), row)
	}
	m.Label("pair")
	m.zeros()
	m.pointers()
	m.blocks()
	if m.runs() { // others have zeros behind
		m.tail()
	}
	m.sums()
	next := m.GP64()
	m.MOVQ(m.slot("next"), next)
	m.ADDQ(next, m.memory(m.Param("w")))
	if m.runs() {
		m.ADDQ(line, m.memory(m.Param("y")))
	} else {
		m.ADDQ(U32(128), m.memory(m.Param("y")))
		m.MOVQ(m.slot("behind"), next)
		m.ADDQ(next, m.slot("fetch"))
	}
	m.DECQ(m.slot("pairs"))
	m.JNZ(LabelRef("pair"))
	m.release()
	m.VZEROUPPER()
	m.RET()
}

// memory is where a parameter or the result is.
func (m *multiply) memory(c gotypes.Component) Mem {
	p, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// slot is a number of the plan.
func (m *multiply) slot(name string) Mem {
	return Mem{Base: work, Disp: workPlan + 8*slices.Index(plan, name)}
}

// eachSum calls f for the tiles of sums.
func (m *multiply) eachSum(f func(t, h int)) {
	for t := range m.tokens {
		for h := range m.halves {
			f(t, h)
		}
	}
}

func (m *multiply) zeros() {
	m.eachSum(func(t, h int) { m.zero(2*t + h) })
}

// pointers begins a pair.
func (m *multiply) pointers() {
	m.Load(m.Param("w"), upper)
	if !m.runs() {
		m.LEAQ(Mem{Base: upper, Disp: 1024}, lower)
	}
	m.firstTokens()
}

func (m *multiply) firstTokens() {
	m.Load(m.Param("x"), packed[0])
	if m.tokens > 1 {
		m.MOVQ(packed[0], packed[1])
		m.ADDQ(m.slot("second"), packed[1])
	}
}

var labels int

// label is one that no other is like.
func label(name string) string {
	labels++
	return fmt.Sprintf("%s_%d", name, labels)
}

// both runs code for more than 16 rows.
func (m *multiply) both(then func()) {
	skip := label("no_second")
	m.CMPQ(m.slot("rows"), U8(16))
	m.JLE(LabelRef(skip))
	then()
	m.Label(skip)
}

// blocks multiplies what fills tiles. Sums are added up in memory, but those of the last
// block, to which a tail belongs.
func (m *multiply) blocks() {
	left, count := m.GP64(), m.GP64()
	m.MOVQ(m.slot("k"), left)
	m.ADDQ(U8(31), left)
	m.SHRQ(U8(5), left)
	m.JZ(LabelRef("multiplied"))
	m.MOVQ(U32(0), m.slot("later"))
	f := fetches{places: []reg.Register{m.GP64(), m.GP64()}, quarter: m.GP64()}
	if !m.runs() {
		m.MOVQ(m.slot("fetch"), f.places[0])
		m.MOVQ(m.slot("quarter"), f.quarter)
		m.LEAQ(Mem{Base: f.places[0], Index: f.quarter, Scale: 2}, f.places[1])
	}
	m.Label("block")
	m.MOVQ(U32(blockSteps), count)
	m.CMPQ(left, count)
	m.CMOVQLT(left, count)
	m.SUBQ(count, left)
	m.MOVQ(left, m.slot("left"))
	if m.runs() {
		m.withoutTail(left, count)
		m.runSteps(count)
	} else {
		m.CMPQ(m.slot("stride"), U8(64))
		m.JLE(LabelRef("few"))
		f.lines = manyLines
		m.packedSteps("many", count, f)
		m.JMP(LabelRef("stepped"))
		f.lines = 1
		m.packedSteps("few", count, f)
	}
	m.Label("stepped")
	m.MOVQ(m.slot("left"), left)
	m.TESTQ(left, left)
	m.JZ(LabelRef("multiplied"))
	m.total()
	m.zeros()
	m.JMP(LabelRef("block"))
	m.Label("multiplied")
}

// withoutTail takes the tail from the steps of the last block.
func (m *multiply) withoutTail(left, count reg.Register) {
	m.TESTQ(left, left)
	m.JNZ(LabelRef("next"))
	rest := m.GP64()
	m.MOVQ(m.slot("k"), rest)
	m.ANDQ(U8(31), rest)
	m.JZ(LabelRef("next"))
	m.DECQ(count)
	m.JZ(LabelRef("stepped"))
}

// packedSteps are those of a block of packed weights.
func (m *multiply) packedSteps(name string, count reg.Register, f fetches) {
	m.Label(name)
	m.Load(m.Param("y"), result)
	m.Label(name + "_next")
	m.fetchResults()
	m.step(line, f)
	m.ADDQ(U32(2048*m.weights), upper)
	m.ADDQ(U32(2048*m.weights), lower)
	for _, p := range f.places {
		m.ADDQ(m.slot("stride"), p)
	}
	m.DECQ(count)
	m.JNZ(LabelRef(name + "_next"))
}

// runSteps are those of a block of runs.
func (m *multiply) runSteps(count reg.Register) {
	m.Label("next")
	m.fetchRuns()
	m.step(apart, fetches{})
	m.ADDQ(line, upper)
	m.DECQ(count)
	m.JNZ(LabelRef("next"))
}

// fetchRuns fetches lines of all runs.
func (m *multiply) fetchRuns() {
	at := m.GP64()
	m.LEAQ(Mem{Base: upper, Disp: 64 * runSteps}, at)
	for i := range 8 {
		if i > 0 {
			m.LEAQ(Mem{Base: at, Index: apart, Scale: 2}, at)
		}
		m.PREFETCHT0(Mem{Base: at})
		m.PREFETCHT0(Mem{Base: at, Index: apart, Scale: 1})
	}
}

// fetchResults fetches lines that the results will be written to, as many as 16 steps need to get
// those of all tokens: a row of results is a page or more behind the one before it, and the stores
// would wait for each.
func (m *multiply) fetchResults() {
	for range m.tokens {
		m.fetchToWrite(result, 0)
		m.fetchToWrite(result, 64)
		m.ADDQ(m.slot("ys"), result)
	}
}

// step multiplies 32 elements.
func (m *multiply) step(index reg.Register, f fetches) {
	weights := []reg.Register{upper, lower}[:m.halves]
	done, all := 0, m.parts*m.weights
	for p := range m.weights {
		for h, w := range weights {
			m.load(4+h, w, 2048*p, index)
		}
		for q := range m.parts - p {
			for t := range m.tokens {
				at, x := 1024*q, 6+t
				if m.tokens == 1 {
					at, x = 0, 6+q%2
				}
				m.load(x, packed[t], at, row)
				for h := range weights {
					m.dot(2*t+h, 4+h, x)
				}
				m.fetchAhead(p, q, t, weights)
				if m.tokens == 1 {
					m.nextTile()
				}
			}
			m.fetchLines(f, done, all)
			done++
		}
	}
	for t := 0; t < m.tokens && m.tokens > 1; t++ {
		m.ADDQ(U32(1024*m.parts), packed[t])
	}
}

// nextTile moves behind a tile of tokens.
func (m *multiply) nextTile() {
	for range 2 { // its 16 rows
		m.LEAQ(Mem{Base: packed[0], Index: row, Scale: 8}, packed[0])
	}
}

// fetchLines fetches a share of the lines of a step.
func (m *multiply) fetchLines(f fetches, share, shares int) {
	for i := f.lines * share / shares; i < f.lines*(share+1)/shares; i++ {
		for _, at := range f.places {
			m.PREFETCHT1(Mem{Base: at, Disp: 64 * i})
			m.PREFETCHT1(Mem{Base: at, Index: f.quarter, Scale: 1, Disp: 64 * i})
		}
	}
}

// fetchAhead fetches the packed tiles that follow these some steps later: those of a part of the
// tokens, and of a part of the weights with its first.
func (m *multiply) fetchAhead(p, q, t int, weights []reg.Register) {
	if m.runs() || aheadSteps == 0 {
		return
	}
	if p == 0 {
		m.fetch(packed[t], 1024*(q+m.parts*aheadSteps), 16)
	}
	for h := 0; h < len(weights) && q == 0 && t == 0; h++ {
		m.fetch(weights[h], 2048*(p+m.weights*aheadSteps), 16)
	}
}

// fetch fetches lines to L1.
func (m *multiply) fetch(base reg.Register, offset, lines int) {
	for i := range lines {
		m.PREFETCHT0(Mem{Base: base, Disp: offset + 64*i})
	}
}

// total puts the sums of a block to those of the blocks before it.
func (m *multiply) total() {
	m.INCQ(m.slot("later"))
	m.CMPQ(m.slot("later"), U8(1))
	m.JNE(LabelRef("later"))
	m.keep(workTotals)
	m.JMP(LabelRef("kept"))
	m.Label("later")
	m.keep(workSums)
	at, v := m.GP64(), m.ZMM()
	m.XORQ(at, at)
	m.Label("add")
	m.VMOVUPS(Mem{Base: work, Index: at, Scale: 1, Disp: workSums}, v)
	m.VADDPS(Mem{Base: work, Index: at, Scale: 1, Disp: workTotals}, v, v)
	m.VMOVUPS(v, Mem{Base: work, Index: at, Scale: 1, Disp: workTotals})
	m.ADDQ(line, at)
	m.CMPQ(at, U32(2048*m.tokens))
	m.JLT(LabelRef("add"))
	m.Label("kept")
}

// keep stores the sums.
func (m *multiply) keep(at int) {
	m.eachSum(func(t, h int) { m.store(2*t+h, work, at+1024*(2*t+h), line) })
}

// tail copies the last elements of the rows, with zeros behind, and multiplies them.
func (m *multiply) tail() {
	k, rows, at, to := m.GP64(), m.GP64(), m.GP64(), m.GP64()
	m.MOVQ(m.slot("k"), k)
	m.MOVQ(m.slot("rows"), rows)
	m.MOVQ(k, at)
	m.ANDQ(U8(31), k)
	m.JZ(LabelRef("sums"))
	m.SUBQ(k, at)
	m.ADDQ(at, at)
	m.ADDQ(m.memory(m.Param("w")), at)
	mask, v := m.K(), m.ZMM()
	m.KMOVD(first(m.Context, k, 32).As32(), mask)
	m.LEAQ(Mem{Base: work, Disp: workTail}, to)
	m.MOVQ(to, upper)
	m.Label("copy")
	m.VMOVDQU16_Z(Mem{Base: at}, mask, v)
	m.VMOVDQU32(v, Mem{Base: to})
	m.ADDQ(apart, at)
	m.ADDQ(line, to)
	m.DECQ(rows)
	m.JNZ(LabelRef("copy"))
	m.step(line, fetches{})
}
