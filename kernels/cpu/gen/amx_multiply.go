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
var plan = []string{"k", "n", "ys", "pairs", "rows", "between", "half", "advance", "next", "second", "fetch", "apart", "stride", "behind", "near", "left", "later"}

// blockSteps is after how many steps of 32 elements sums begin anew: sums in f32 lose the
// more digits the longer they are.
const blockSteps = 16

// nearSteps is how many steps before they are wanted lines are fetched that nothing has fetched.
const nearSteps = 8

// aheadSteps is how many steps before they are loaded copied weights and tokens are fetched from
// the L2 cache to L1; 0: they are not.
const aheadSteps = 2

// manyLines is how many lines a step fetches from each of four places, if not one.
const manyLines = 8

// multiply is the product of weights, in pairs of 16 rows, with one or two tiles of up to
// 16 tokens. Tile 2t + h has the sums of half h of the rows with tile t of the tokens; 4 and
// 5 are the weights, 6 and 7 parts of x. With two, twelve products are made of eight
// loads. Sums are the same with one and two.
type multiply struct {
	tiles
	parts, tokens int // of x, and tiles of tokens
}

// fetches is what a step fetches.
type fetches struct {
	places []reg.Register // two of those of the plan; the others are apart bytes behind
	apart  reg.Register
	lines  int  // from each of the four places; 0: none
	near   bool // the lines of these rows, some steps ahead: of a pair that nothing has fetched
	copied bool // weights, which are packed, and tokens to L1
}

// The registers of the machine that tile instructions name.
var (
	work         = reg.RDX
	upper, lower = reg.RSI, reg.RDI                  // the first 16 rows, and the second
	between      = reg.RBX                           // bytes from a row of weights to the next
	packed       = []reg.GPPhysical{reg.R8, reg.R10} // parts of x
	row          = []reg.GPPhysical{reg.R9, reg.R11} // bytes from a row of theirs to the next
	line         = reg.R12                           // 64
	result       = reg.RAX                           // the next to fetch
)

func (m *multiply) function() {
	name := fmt.Sprintf("amxMultiply%dx%d", m.parts, m.tokens)
	function(m.Context, name, "(work *byte, w *uint16, x *byte, y *float32) (odd uint32)",
		fmt.Sprintf("%s multiplies pairs of 16 rows of weights with tokens packed in %d parts and %d tiles, as the work says.", name, m.parts, m.tokens),
		"Bits of odd stand for tokens of whose results some are not finite or less than the least.")
	m.Load(m.Param("work"), work)
	m.config(work)
	m.MOVQ(m.slot("between"), between)
	m.MOVQ(U32(64), line)
	m.MOVL(U32(0), m.memory(m.Return("odd")))
	last := row[m.tokens-1]
	m.MOVQ(m.slot("n"), last)
	if m.tokens > 1 {
		m.SUBQ(U8(16), last)
		m.MOVQ(line, row[0])
	}
	m.SHLQ(U8(2), last)
	m.Label("pair")
	m.zeros()
	m.pointers()
	m.blocks()
	m.tail()
	m.sums()
	next := m.GP64()
	m.MOVQ(m.slot("next"), next)
	m.ADDQ(next, m.memory(m.Param("w")))
	m.ADDQ(U32(128), m.memory(m.Param("y")))
	m.MOVQ(m.slot("behind"), next)
	m.ADDQ(next, m.slot("fetch"))
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

func (m *multiply) zeros() {
	for t := range 2 * m.tokens {
		m.zero(t)
	}
}

// pointers begins a pair.
func (m *multiply) pointers() {
	m.Load(m.Param("w"), upper)
	m.MOVQ(upper, lower)
	m.both(func() { m.ADDQ(m.slot("half"), lower) })
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
// block, which goes on in the tail.
func (m *multiply) blocks() {
	left, count := m.GP64(), m.GP64()
	m.MOVQ(m.slot("k"), left)
	m.SHRQ(U8(5), left)
	m.JZ(LabelRef("tail"))
	m.MOVQ(U32(0), m.slot("later"))
	fetch, apart := []reg.Register{m.GP64(), m.GP64()}, m.GP64()
	m.MOVQ(m.slot("fetch"), fetch[0])
	m.MOVQ(m.slot("apart"), apart)
	m.LEAQ(Mem{Base: fetch[0], Index: apart, Scale: 2}, fetch[1])
	m.Label("block")
	m.MOVQ(U32(blockSteps), count)
	m.CMPQ(left, count)
	m.CMOVQLT(left, count)
	m.SUBQ(count, left)
	m.MOVQ(left, m.slot("left"))
	f := fetches{places: fetch, apart: apart}
	m.CMPQ(m.slot("near"), U8(0))
	m.JNE(LabelRef("beginning"))
	m.CMPQ(between, U8(64))
	m.JZ(LabelRef("copied"))
	m.TESTQ(apart, apart)
	m.JNZ(LabelRef("fetching"))
	m.steps("step", count, f)
	f.lines = manyLines
	m.steps("fetching", count, f)
	f.near = true
	m.steps("beginning", count, f)
	m.Label("copied")
	f.near, f.copied = false, true
	m.CMPQ(m.slot("stride"), U8(64))
	m.JLE(LabelRef("few"))
	m.steps("many", count, f)
	f.lines = 1
	m.steps("few", count, f)
	m.Label("stepped")
	m.MOVQ(m.slot("left"), left)
	m.TESTQ(left, left)
	m.JZ(LabelRef("tail"))
	m.total()
	m.zeros()
	m.JMP(LabelRef("block"))
}

// steps are those of a block. They end at the label "stepped".
func (m *multiply) steps(name string, count reg.Register, f fetches) {
	m.Label(name)
	if !f.near {
		m.Load(m.Param("y"), result)
	}
	m.Label(name + "_next")
	if f.near {
		m.fetchNear()
	} else {
		m.fetchResults()
	}
	m.step(between, f)
	m.ADDQ(m.slot("advance"), upper)
	m.ADDQ(m.slot("advance"), lower)
	if f.lines > 0 {
		for _, p := range f.places {
			m.ADDQ(m.slot("stride"), p)
		}
	}
	m.DECQ(count)
	m.JNZ(LabelRef(name + "_next"))
	m.JMP(LabelRef("stepped"))
}

// fetchNear fetches the lines of all rows some steps before they are wanted.
func (m *multiply) fetchNear() {
	at, half := m.GP64(), m.GP64()
	for _, from := range []reg.Register{upper, lower} {
		m.MOVQ(U32(8), half)
		m.LEAQ(Mem{Base: from, Disp: 64 * nearSteps}, at)
		again := label("near")
		m.Label(again)
		m.PREFETCHT0(Mem{Base: at})
		m.PREFETCHT0(Mem{Base: at, Index: between, Scale: 1})
		m.LEAQ(Mem{Base: at, Index: between, Scale: 2}, at)
		m.DECQ(half)
		m.JNZ(LabelRef(again))
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
	m.load(4, upper, 0, index)
	m.load(5, lower, 0, index)
	for p := range m.parts {
		for t := range m.tokens {
			x := 6 + t
			if m.tokens == 1 {
				x += p % 2
			}
			m.load(x, packed[t], 0, row[t])
			m.dot(2*t, 4, x)
			m.fetchAhead(packed[t], m.parts, f)
			m.dot(2*t+1, 5, x)
			if p == 0 && t == 0 {
				m.fetchAhead(upper, 2, f)
				m.fetchAhead(lower, 2, f)
			}
			for range 2 { // its 16 rows
				m.LEAQ(Mem{Base: packed[t], Index: row[t], Scale: 8}, packed[t])
			}
		}
		for i := f.lines * p / m.parts; i < f.lines*(p+1)/m.parts; i++ {
			for _, at := range f.places {
				m.PREFETCHT1(Mem{Base: at, Disp: 64 * i})
				m.PREFETCHT1(Mem{Base: at, Index: f.apart, Scale: 1, Disp: 64 * i})
			}
		}
	}
}

// fetchAhead fetches the tile that follows one some steps later, each of which takes some tiles.
func (m *multiply) fetchAhead(tile reg.Register, tiles int, f fetches) {
	if f.copied && aheadSteps > 0 {
		m.fetch(tile, 1024*tiles*aheadSteps, 16)
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
	for t := range 2 * m.tokens {
		m.store(t, work, at+1024*t, line)
	}
}

// tail copies the last elements of the rows, with zeros behind, and multiplies them.
func (m *multiply) tail() {
	m.Label("tail")
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
	m.MOVQ(to, lower)
	m.both(func() { m.ADDQ(U32(1024), lower) })
	m.Label("copy")
	m.VMOVDQU16_Z(Mem{Base: at}, mask, v)
	m.VMOVDQU32(v, Mem{Base: to})
	m.ADDQ(between, at)
	m.ADDQ(line, to)
	m.DECQ(rows)
	m.JNZ(LabelRef("copy"))
	m.step(line, fetches{})
}

// sums gives the tokens their results.
func (m *multiply) sums() {
	m.Label("sums")
	m.keep(workSums)
	m.firstTokens() // the next pair's, which its own steps do not fetch
	for t := range m.tokens {
		m.fetch(packed[t], 0, 16*m.parts*aheadSteps)
	}
	y, n, ys := m.Load(m.Param("y"), m.GP64()), m.GP64(), m.GP64()
	m.MOVQ(m.slot("n"), n)
	m.MOVQ(m.slot("ys"), ys)
	rows, mask := m.GP64(), m.K()
	for t := range m.tokens {
		if t > 0 {
			m.SUBQ(U8(16), n)
			for range 2 {
				m.LEAQ(Mem{Base: y, Index: ys, Scale: 8}, y)
			}
		}
		m.MOVQ(m.slot("rows"), rows)
		valid := first(m.Context, rows, 32)
		m.KMOVW(valid.As32(), mask)
		m.half(t, 0, y, ys, n, mask)
		m.both(func() {
			m.SHRL(U8(16), valid.As32())
			m.KMOVW(valid.As32(), mask)
			m.half(t, 1, y, ys, n, mask)
		})
	}
}

// half gives them those of 16 rows.
func (m *multiply) half(t, h int, y, ys, n, mask reg.Register) {
	sums, token := workSums+1024*(2*t+h), 128*t
	sign, scale := all(m.Context, 0x7fffffff), m.ZMM()
	least, most := all(m.Context, 0xffffffff), m.ZMM()
	m.VPXORD(most, most, most)
	m.VMOVUPS(Mem{Base: work, Disp: workScale + token}, scale)
	var v []reg.VecVirtual
	for r := range 16 {
		z, size := m.ZMM(), m.ZMM()
		m.VMOVUPS(Mem{Base: work, Disp: sums + 64*r}, z)
		m.VADDPS(Mem{Base: work, Disp: sums + 64*r + workTotals - workSums}, z, z)
		m.VSCALEFPS(scale, z, z)
		m.VPANDD(sign, z, size)
		m.VPMINUD(size, least, least)
		m.VPMAXUD(size, most, most)
		v = append(v, z)
	}
	for _, bad := range []func(k reg.Register){
		func(k reg.Register) { m.VPCMPUD(U8(1), Mem{Base: work, Disp: workLeast + token}, least, k) }, // less
		func(k reg.Register) { m.VPCMPUD(U8(5), all(m.Context, 0x7f800000), most, k) },                // not less
	} {
		k, found := m.K(), m.GP32()
		bad(k)
		m.KMOVW(k, found)
		if t > 0 {
			m.SHLL(U8(16), found)
		}
		m.ORL(found, m.memory(m.Return("odd")))
	}
	v = transposed16(m.Context, v)
	at := m.GP64()
	m.LEAQ(Mem{Base: y, Disp: 64 * h}, at)
	done := label("stored")
	for i := range 16 {
		if i > 0 {
			if t == m.tokens-1 { // those before are full
				m.CMPQ(n, U8(i))
				m.JLE(LabelRef(done))
			}
			m.ADDQ(ys, at)
		}
		m.VMOVUPS(v[i], mask, Mem{Base: at})
	}
	m.Label(done)
}
