package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amx generates the product of weights in bf16 with x in f32: x is taken apart into
// bf16, once per call, and tiles multiply. Go's scheduler never stops a goroutine in
// assembly, and the system keeps tiles when it stops a thread, so that no other thread sees
// them between LDTILECFG and TILERELEASE, which are in one function.
func amx(c *build.Context) {
	largest(c)
	rowsToTiles(c)
	fetchLines(c)
	tilePeak(tiles{c})
	for _, s := range []struct {
		suffix string
		parts  int
	}{{"3", 3}, {"1", 1}} {
		p := &pack{Context: c, parts: s.parts}
		p.tokens("amxPack" + s.suffix)
		p.token("amxPackOne" + s.suffix)
		for _, tokens := range []int{1, 2} {
			(&multiply{tiles{c}, s.parts, tokens}).function()
		}
	}
}

// all is a vector that has a number in each lane.
func all(c *build.Context, bits uint32) reg.VecVirtual {
	r, v := c.GP32(), c.ZMM()
	c.MOVL(U32(bits), r)
	c.VPBROADCASTD(r, v)
	return v
}

// first sets the lowest n of 64 bits, or as many of them as most are, in a general register.
func first(c *build.Context, n reg.Register, most int) reg.GPVirtual {
	count, bits := c.GP64(), c.GP64()
	c.MOVQ(U32(most), count)
	c.CMPQ(n, count)
	c.CMOVQLT(n, count)
	c.MOVQ(I32(-1), bits)
	c.BZHIQ(count, bits, bits)
	return bits
}

func largest(c *build.Context) {
	function(c, "amxLargest", "(x *float32, k int) uint32", "amxLargest is the bits of the largest absolute value of x[:k]; any NaN is larger than all numbers.")
	x, k := c.Load(c.Param("x"), c.GP64()), c.Load(c.Param("k"), c.GP64())
	most, sign, mask := c.ZMM(), all(c, 0x7fffffff), c.K()
	c.VPXORD(most, most, most)
	c.Label("next")
	c.KMOVW(first(c, k, 16).As32(), mask)
	v := c.ZMM()
	c.VMOVUPS_Z(Mem{Base: x}, mask, v)
	c.VPANDD(sign, v, v)
	c.VPMAXUD(v, most, most)
	c.ADDQ(U8(64), x)
	c.SUBQ(U8(16), k)
	c.JGT(LabelRef("next"))
	half, quarter := c.YMM(), c.XMM()
	c.VEXTRACTI64X4(U8(1), most, half)
	c.VPMAXUD(most.AsY(), half, half)
	c.VEXTRACTI128(U8(1), half, quarter)
	c.VPMAXUD(half.AsX(), quarter, quarter)
	pair := c.XMM()
	for _, order := range []uint8{0x4e, 0xb1} {
		c.VPSHUFD(U8(order), quarter, pair)
		c.VPMAXUD(pair, quarter, quarter)
	}
	out := c.GP32()
	c.VMOVD(quarter, out)
	c.VZEROUPPER()
	c.Store(out, c.ReturnIndex(0))
	c.RET()
}

// rowsToTiles copies rows of weights to where tiles are read faster than from rows that do
// not begin with a line of the cache.
func rowsToTiles(c *build.Context) {
	function(c, "amxTiles", "(w *uint16, ws, k, rows int, to *byte)",
		"amxTiles copies 32 rows of weights, or fewer: of each 32 of the k elements those of all rows, and zeros behind the last.")
	w, ws, k := c.Load(c.Param("w"), c.GP64()), c.Load(c.Param("ws"), c.GP64()), c.Load(c.Param("k"), c.GP64())
	rows, to := c.Load(c.Param("rows"), c.GP64()), c.Load(c.Param("to"), c.GP64())
	c.ADDQ(ws, ws)
	c.Label("row")
	from, at, left := c.GP64(), c.GP64(), c.GP64()
	mask, v := c.K(), c.ZMM()
	c.MOVQ(w, from)
	c.MOVQ(to, at)
	c.MOVQ(k, left)
	c.Label("next")
	c.KMOVD(first(c, left, 32).As32(), mask)
	c.VMOVDQU16_Z(Mem{Base: from}, mask, v)
	c.VMOVDQU32(v, Mem{Base: at})
	c.ADDQ(U8(64), from)
	c.ADDQ(U32(2048), at)
	c.SUBQ(U8(32), left)
	c.JGT(LabelRef("next"))
	c.ADDQ(ws, w)
	c.ADDQ(U8(64), to)
	c.DECQ(rows)
	c.JNZ(LabelRef("row"))
	c.VZEROUPPER()
	c.RET()
}

// fetchLines asks for memory before the first product.
func fetchLines(c *build.Context) {
	function(c, "amxFetch", "(w *uint16, ws, rows int)", fmt.Sprintf("amxFetch asks for the first %d lines of some rows of weights.", nearSteps))
	w, ws, rows := c.Load(c.Param("w"), c.GP64()), c.Load(c.Param("ws"), c.GP64()), c.Load(c.Param("rows"), c.GP64())
	c.Label("next")
	for i := range nearSteps {
		c.PREFETCHT0(Mem{Base: w, Disp: 64 * i})
	}
	c.LEAQ(Mem{Base: w, Index: ws, Scale: 2}, w)
	c.DECQ(rows)
	c.JNZ(LabelRef("next"))
	c.RET()
}

// tilePeak is a loop of products alone, to compare with.
func tilePeak(c tiles) {
	const sums = 6
	function(c.Context, "amxPeak", "(work *byte, n int)", fmt.Sprintf("amxPeak multiplies %d n times two tiles.", sums))
	c.Load(c.Param("work"), work)
	n := c.Load(c.Param("n"), c.GP64())
	c.config(work)
	for t := range 8 {
		c.zero(t)
	}
	c.Label("next")
	for t := range sums {
		c.dot(t, 6, 7)
	}
	c.DECQ(n)
	c.JNZ(LabelRef("next"))
	c.release()
	c.RET()
}

// pack takes x apart: a step of 32 elements becomes a tile per part, which has a row
// for each pair of elements, with the pair of each token.
type pack struct {
	*build.Context
	parts int

	upper    reg.VecVirtual // the 16 bits that are a bf16
	one, mid reg.VecVirtual // to round with
}

func (p *pack) constants() {
	p.upper = all(p.Context, 0xffff0000)
	if p.parts == 1 {
		p.one, p.mid = all(p.Context, 1), all(p.Context, 0x7fff)
	}
}

// split takes numbers apart. Three parts are cut off, so that each is exact and has the
// sign of the number, and their sum is it; one is rounded to the nearest.
func (p *pack) split(v reg.VecVirtual) []reg.VecVirtual {
	if p.parts == 1 {
		odd := p.ZMM()
		p.VPSRLD(U8(16), v, odd)
		p.VPANDD(p.one, odd, odd)
		p.VPADDD(p.mid, odd, odd)
		p.VPADDD(odd, v, v)
		p.VPANDD(p.upper, v, v)
		return []reg.VecVirtual{v}
	}
	hi, mid := p.ZMM(), p.ZMM()
	p.VPANDD(p.upper, v, hi)
	p.VSUBPS(hi, v, v)
	p.VPANDD(p.upper, v, mid)
	p.VSUBPS(mid, v, v)
	return []reg.VecVirtual{hi, mid, v}
}

func (p *pack) tokens(name string) {
	function(p.Context, name, "(x *float32, rows *[16]int, scale *[16]float32, k int, to *byte, n int)",
		fmt.Sprintf("%s writes tiles of n tokens in %d parts, times 2^scale. The rows are some bytes behind x; there are 16, of which those from n on are not used.", name, p.parts))
	x, rows, k := p.Load(p.Param("x"), p.GP64()), p.Load(p.Param("rows"), p.GP64()), p.Load(p.Param("k"), p.GP64())
	to, n := p.Load(p.Param("to"), p.GP64()), p.Load(p.Param("n"), p.GP64())
	scale := p.ZMM()
	at := p.Load(p.Param("scale"), p.GP64())
	p.VMOVUPS(Mem{Base: at}, scale)
	lanes := p.K()
	p.KMOVW(first(p.Context, n, 16).As32(), lanes)
	row, tile, back := n, p.GP64(), p.GP64() // bytes of them
	p.SHLQ(U8(2), row)
	p.MOVQ(row, tile)
	p.SHLQ(U8(4), tile)
	p.MOVQ(tile, back)
	p.SHRQ(U8(1), back)
	p.constants()
	p.Label("step")
	kept := first(p.Context, k, 32)
	mask := p.K()
	p.KMOVW(kept.As32(), mask)
	p.half(0, x, rows, to, row, tile, scale, mask, lanes)
	p.SHRQ(U8(16), kept)
	p.KMOVW(kept.As32(), mask)
	p.half(64, x, rows, to, row, tile, scale, mask, lanes)
	p.ADDQ(U8(128), x)
	for range p.parts - 1 {
		p.ADDQ(tile, to) // half of it already is behind
	}
	p.SUBQ(U8(32), k)
	p.JGT(LabelRef("step"))
	p.VZEROUPPER()
	p.RET()
}

// half writes the tiles' rows of 16 elements, and moves to behind those of the first tile.
func (p *pack) half(offset int, x, rows, to, row, tile reg.Register, scale reg.VecVirtual, mask, lanes reg.Register) {
	var v []reg.VecVirtual
	for t := range 16 {
		at, z := p.GP64(), p.ZMM()
		p.MOVQ(Mem{Base: rows, Disp: 8 * t}, at)
		p.VMOVUPS_Z(Mem{Base: x, Index: at, Scale: 1, Disp: offset}, mask, z)
		v = append(v, z)
	}
	v = transposed16(p.Context, v)
	for i := 0; i < 16; i += 2 {
		p.VSCALEFPS(scale, v[i], v[i])
		p.VSCALEFPS(scale, v[i+1], v[i+1])
		even, odd := p.split(v[i]), p.split(v[i+1])
		at := p.GP64()
		p.MOVQ(to, at)
		for part := range even {
			if part > 0 {
				p.ADDQ(tile, at)
			}
			p.VPSRLD(U8(16), even[part], even[part])
			p.VPTERNLOGD(U8(0xf8), p.upper, odd[part], even[part]) // even | odd & upper: the last part may have bits below
			p.VMOVDQU32(even[part], lanes, Mem{Base: at})
		}
		p.ADDQ(row, to)
	}
}

// token is tokens for a single one, whose tiles are its parts as they are.
func (p *pack) token(name string) {
	function(p.Context, name, "(x *float32, scale float32, k int, to *byte)",
		fmt.Sprintf("%s writes the tiles of one token in %d parts, times 2^scale.", name, p.parts))
	x, k, to := p.Load(p.Param("x"), p.GP64()), p.Load(p.Param("k"), p.GP64()), p.Load(p.Param("to"), p.GP64())
	low, scale := p.Load(p.Param("scale"), p.XMM()), p.ZMM()
	p.VBROADCASTSS(low.(reg.VecVirtual), scale)
	p.constants()
	p.Label("step")
	kept := first(p.Context, k, 32)
	for h := range 2 {
		mask, v := p.K(), p.ZMM()
		if h > 0 {
			p.SHRQ(U8(16), kept)
		}
		p.KMOVW(kept.As32(), mask)
		p.VMOVUPS_Z(Mem{Base: x, Disp: 64 * h}, mask, v)
		p.VSCALEFPS(scale, v, v)
		for i, part := range p.split(v) {
			p.VPSRLD(U8(16), part, part)
			p.VPMOVDW(part, Mem{Base: to, Disp: 64*i + 32*h})
		}
	}
	p.ADDQ(U8(128), x)
	p.ADDQ(Imm(uint64(64*p.parts)), to)
	p.SUBQ(U8(32), k)
	p.JGT(LabelRef("step"))
	p.VZEROUPPER()
	p.RET()
}

// transposed16 makes columns of the rows of a square.
func transposed16(c *build.Context, r []reg.VecVirtual) []reg.VecVirtual {
	type op func(...Op)
	pair := func(a, b reg.VecVirtual, lo, hi op) (x, y reg.VecVirtual) {
		x, y = c.ZMM(), c.ZMM()
		lo(b, a, x)
		hi(b, a, y)
		return x, y
	}
	blocks := func(a, b reg.VecVirtual) (even, odd reg.VecVirtual) {
		even, odd = c.ZMM(), c.ZMM()
		c.VSHUFF32X4(U8(0x88), b, a, even)
		c.VSHUFF32X4(U8(0xdd), b, a, odd)
		return even, odd
	}
	var quads [16]reg.VecVirtual // each block of one has a column of four rows
	for g := 0; g < 16; g += 4 {
		a, b := pair(r[g], r[g+1], c.VUNPCKLPS, c.VUNPCKHPS)
		d, e := pair(r[g+2], r[g+3], c.VUNPCKLPS, c.VUNPCKHPS)
		quads[g], quads[g+1] = pair(a, d, c.VUNPCKLPD, c.VUNPCKHPD)
		quads[g+2], quads[g+3] = pair(b, e, c.VUNPCKLPD, c.VUNPCKHPD)
	}
	out := make([]reg.VecVirtual, 16)
	for j := range 4 {
		a, b := blocks(quads[j], quads[4+j])
		d, e := blocks(quads[8+j], quads[12+j])
		out[j], out[8+j] = blocks(a, d)
		out[4+j], out[12+j] = blocks(b, e)
	}
	return out
}

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
