package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// recurrence of one token. Lane i of a vector sums the elements i, i + lanes, … of a row,
// and then halves are added.
func (g *vec) recurrence() {
	g.function("recur", "(h *float32, b, c, x, y *float32, rows, n int, dt, decay float32)",
		"takes the state of a head past a token: h[p] = decay h[p] + dt x[p] b, y[p] = h[p]·c, for rows of n, at least 1.")
	h, x, y, rows, hs := g.param("h"), g.param("x"), g.param("y"), g.param("rows"), g.stride("n")
	decay, dt, rest := g.number(g.memory("decay")), g.number(g.memory("dt")), g.rest(g.param("n"))
	hs3 := g.triple(hs)
	for _, count := range []int{4, 1} {
		g.loop("rows", rows, count, func() {
			at, b, c, left := g.GP64(), g.param("b"), g.param("c"), g.param("n")
			g.MOVQ(h, at)
			var weight, sums [4]vector
			for r := range count {
				weight[r], sums[r] = g.mul(dt, g.number(Mem{Base: x, Disp: 4 * r})), g.zero()
			}
			step := func(t *tail) {
				bv, cv := g.load(Mem{Base: b}, t), g.load(Mem{Base: c}, t)
				for r, line := range strided(at, hs, hs3) {
					if r == count {
						break
					}
					v := g.mul(bv, weight[r])
					g.VFMADD231PS(g.operand(line, t), decay, v)
					if t != nil {
						t.clear(v) // 0 times infinity, in lanes without an element
					}
					g.store(v, line, t)
					g.VFMADD231PS(cv, v, sums[r])
				}
			}
			g.loop("vectors", left, g.set.lanes, func() {
				step(nil)
				for _, p := range []reg.Register{at, b, c} {
					g.ADDQ(U8(g.bytes()), p)
				}
			})
			done := g.label("done")
			g.JZ(LabelRef(done))
			step(&rest)
			g.Label(done)
			for r := range count {
				g.VMOVSS(g.across(sums[r], g.VADDPS, 32), Mem{Base: y, Disp: 4 * r})
				g.ADDQ(hs, h)
			}
			g.ADDQ(U8(4*count), x)
			g.ADDQ(U8(4*count), y)
		})
	}
	g.end()
}
