package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// recurrence of one token. Lane i of a vector sums the elements i, i + lanes, … of a row,
// and then halves are added.
func (g *weighing) recurrence() {
	g.function("recur", "(h *float32, b, c, x, y *float32, rows, n int, dt, decay float32)",
		"takes the state of a head past a token: h[p] = decay h[p] + dt x[p] b, y[p] = h[p]·c, for rows of n, at least 1.")
	h, x, y, rows, n := g.param("h"), g.param("x"), g.param("y"), g.param("rows"), g.param("n")
	decay, dt := g.new(), g.new()
	g.VBROADCASTSS(g.Load(g.Param("decay"), g.XMM()), decay)
	g.VBROADCASTSS(g.Load(g.Param("dt"), g.XMM()), dt)
	keep, lane := g.last(n)
	hs := g.GP64()
	g.MOVQ(n, hs)
	g.SHLQ(U8(2), hs)
	hs3 := g.triple(hs)

	block := func(label string, count int) {
		g.Label(label)
		g.CMPQ(rows, U8(count))
		g.JLT(LabelRef(label + "_none"))
		at, b, c, left := g.GP64(), g.param("b"), g.param("c"), g.GP64()
		g.MOVQ(h, at)
		g.MOVQ(n, left)
		var weight, sums [4]vector
		for r := range count {
			weight[r], sums[r] = g.new(), g.zero()
			g.VBROADCASTSS(Mem{Base: x, Disp: 4 * r}, weight[r])
			g.VMULPS(dt, weight[r], weight[r])
		}
		line := strided(at, hs, hs3)
		bv, cv := g.new(), g.new()
		g.SUBQ(U8(g.set.lanes), left)
		g.JLT(LabelRef(label + "_tail"))
		g.Label(label + "_next")
		g.VMOVUPS(Mem{Base: b}, bv)
		g.VMOVUPS(Mem{Base: c}, cv)
		for r := range count {
			v := g.new()
			g.VMULPS(bv, weight[r], v)
			g.VFMADD231PS(line[r], decay, v)
			g.VMOVUPS(v, line[r])
			g.VFMADD231PS(cv, v, sums[r])
		}
		for _, p := range []reg.Register{at, b, c} {
			g.ADDQ(Imm(uint64(4*g.set.lanes)), p)
		}
		g.SUBQ(U8(g.set.lanes), left)
		g.JGE(LabelRef(label + "_next"))
		g.Label(label + "_tail")
		g.CMPQ(left, I8(-g.set.lanes))
		g.JE(LabelRef(label + "_done"))
		g.part(Mem{Base: b}, bv, keep, lane)
		g.part(Mem{Base: c}, cv, keep, lane)
		for r := range count {
			v, old := g.new(), g.new()
			g.part(line[r], old, keep, lane)
			g.VMULPS(bv, weight[r], v)
			g.VFMADD231PS(old, decay, v)
			if g.wide() {
				g.VMOVUPS(v, keep, line[r])
				g.VFMADD231PS(cv, v, keep, sums[r])
			} else {
				g.VANDPS(lane, v, v) // 0 times infinity, in lanes without an element
				g.VMASKMOVPS(v, lane, line[r])
				g.VFMADD231PS(cv, v, sums[r])
			}
		}
		g.Label(label + "_done")
		for r := range count {
			sum := g.across(sums[r], func(a, b, to vector) { g.VADDPS(a, b, to) })
			g.VMOVSS(sum, Mem{Base: y, Disp: 4 * r})
			g.ADDQ(hs, h)
		}
		g.ADDQ(U8(4*count), x)
		g.ADDQ(U8(4*count), y)
		g.SUBQ(U8(count), rows)
		g.JMP(LabelRef(label))
		g.Label(label + "_none")
	}
	block("four", 4)
	block("one", 1)
	g.end()
}

// part loads the lanes that are kept, and 0.
func (g *weighing) part(m Mem, to vector, keep reg.OpmaskVirtual, lane vector) {
	if g.wide() {
		g.VMOVUPS_Z(m, keep, to)
	} else {
		g.VMASKMOVPS(m, lane, to)
	}
}
