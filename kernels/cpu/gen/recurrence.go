package main

import . "github.com/mmcloughlin/avo/operand"

// recurrence of one token, with a state in f32 or bf16. Lane i of a vector sums the elements i, i +
// lanes, … of a row, and then halves are added.
func (g *vec) recurrence(f format) {
	name, count := "recur", 4
	doc := []string{"takes the state of a head past a token: h[p] = decay h[p] + dt x[p] b, y[p] = h[p]·c, for rows of n, at least 1."}
	if f == bf16 {
		name, doc = "recurBF16", []string{"is recur for rows in bf16 that fill vectors: h is rounded, and y is of what it was before."}
		if !g.wide() {
			count = 2 // more have no registers
		}
	}
	g.function(name, "(h *"+f.Element+", b, c, x, y *float32, rows, n int, dt, decay float32)", doc...)
	h, x, y, rows, hs := g.param("h"), g.param("x"), g.param("y"), g.param("rows"), g.strideOf(f, "n")
	decay, dt := g.number(g.memory("decay")), g.number(g.memory("dt"))
	var rest tail
	if f == f32 {
		rest = g.rest(g.param("n"))
	}
	hs3 := g.triple(hs)
	for _, count := range []int{count, 1} {
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
					if f == bf16 {
						old := g.new()
						g.widen(f, line, old)
						g.VFMADD231PS(old, decay, v)
						g.roundBF16(v, line)
					} else {
						g.VFMADD231PS(g.operand(line, t), decay, v)
						if t != nil {
							t.clear(v) // 0 times infinity, in lanes without an element
						}
						g.store(v, line, t)
					}
					g.VFMADD231PS(cv, v, sums[r])
				}
			}
			g.loop("vectors", left, g.set.lanes, func() {
				step(nil)
				g.ADDQ(U8(g.set.lanes*f.Size), at)
				g.ADDQ(U8(g.bytes()), b)
				g.ADDQ(U8(g.bytes()), c)
			})
			if f == f32 {
				done := g.label("done")
				g.JZ(LabelRef(done))
				step(&rest)
				g.Label(done)
			}
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
