package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// runGroups is how many groups of a row of each run have their results left together, at most.
const runGroups = 16

// sums gives the tokens their results.
func (m *multiply) sums() {
	m.Label("sums")
	m.keep(workSums)
	if !m.runs() {
		m.firstTokens() // the next pair's, which its own steps do not fetch
		for t := range m.tokens {
			m.fetch(packed[t], 0, 16*m.parts*aheadSteps)
		}
	}
	y, n, ys, rows := m.Load(m.Param("y"), m.GP64()), m.GP64(), m.GP64(), m.GP64()
	m.MOVQ(m.slot("n"), n)
	m.MOVQ(m.slot("ys"), ys)
	m.MOVQ(m.slot("rows"), rows)
	for t := range m.tokens {
		if t > 0 && !m.runs() {
			m.SUBQ(U8(16), n)
			for range 2 {
				m.LEAQ(Mem{Base: y, Index: ys, Scale: 8}, y)
			}
		}
		write := m.rowsOfTokens(y, ys, n, rows)
		if m.runs() {
			write = m.tokensOfRows(t, y)
		}
		m.half(t, 0, write)
		if !m.runs() {
			m.both(func() { m.half(t, 1, write) })
		}
	}
}

// half gives them those of 16 rows, which have a vector each, with tokens in the lanes.
func (m *multiply) half(t, h int, write func(h int, v []reg.VecVirtual)) {
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
	write(h, v)
}

// rowsOfTokens writes results of rows that follow each other, a token's at a time.
func (m *multiply) rowsOfTokens(y, ys, n, rows reg.Register) func(h int, v []reg.VecVirtual) {
	return func(h int, v []reg.VecVirtual) {
		at, mask, done := m.GP64(), m.K(), label("stored")
		valid := first(m.Context, rows, 32)
		m.SHRL(U8(16*h), valid.As32())
		m.KMOVW(valid.As32(), mask)
		m.LEAQ(Mem{Base: y, Disp: 64 * h}, at)
		for i, token := range transposed16(m.Context, v) {
			m.CMPQ(n, U8(i))
			m.JLE(LabelRef(done))
			m.VMOVUPS(token, mask, Mem{Base: at})
			m.ADDQ(ys, at)
		}
		m.Label(done)
	}
}

// tokensOfRows leaves results of a group of rows where those of the groups before it are: there are
// groups of each row, with the tokens of a tile in the lanes.
func (m *multiply) tokensOfRows(t int, y reg.Register) func(h int, v []reg.VecVirtual) {
	return func(h int, v []reg.VecVirtual) {
		for i, row := range v {
			m.VMOVUPS(row, Mem{Base: y, Disp: 64 * runGroups * (16*t + i)})
		}
	}
}

// turn generates what gives tokens the results of a run.
func turn(c *build.Context) {
	function(c, "amxTurn", "(from, y *float32, ys, n, rows int)",
		"amxTurn writes results of n tokens with up to 16 rows, which are behind each other with 16 tokens in the lanes, to the rows of y.")
	from, y, ys := c.Load(c.Param("from"), c.GP64()), c.Load(c.Param("y"), c.GP64()), c.Load(c.Param("ys"), c.GP64())
	n, rows, mask := c.Load(c.Param("n"), c.GP64()), c.Load(c.Param("rows"), c.GP64()), c.K()
	c.SHLQ(U8(2), ys)
	c.KMOVW(first(c, rows, 16).As32(), mask)
	var v []reg.VecVirtual
	for i := range 16 {
		v = append(v, c.ZMM())
		c.VMOVUPS(Mem{Base: from, Disp: 64 * i}, v[i])
	}
	for i, token := range transposed16(c, v) {
		if i > 0 {
			c.CMPQ(n, U8(i))
			c.JLE(LabelRef("written"))
			c.ADDQ(ys, y)
		}
		c.VMOVUPS(token, mask, Mem{Base: y})
	}
	c.Label("written")
	c.VZEROUPPER()
	c.RET()
}
