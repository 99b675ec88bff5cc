package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// delta generates the steps of the gated delta rule for a token, with columns of a state in the
// lanes. A state is walked as it lies in memory, four rows at a time. Rows are summed in order.
func delta(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := &deltaRule{vec: newVec(c, set)}
		g.read()
		g.value()
		g.write()
		g.pairs()
	}
}

type deltaRule struct {
	*vec
	row, row3 reg.Register // bytes from a row to the next, and three times that
}

// rows calls body for four rows of s, as long as there are as many, and then for one.
func (g *deltaRule) rows(s reg.Register, body func(n int)) {
	g.row = g.stride("row")
	g.row3 = g.triple(g.row)
	for _, n := range []int{4, 1} {
		g.loop("rows", g.memory("rows"), n, func() {
			body(n)
			for range n {
				g.ADDQ(g.row, s)
			}
		})
	}
}

// line is row r of four at a byte of the first: to has room for an address.
func (g *deltaRule) line(s, at, to reg.Register, r int) Mem {
	if r == 0 {
		return Mem{Base: s, Index: at, Scale: 1}
	}
	g.LEAQ(Mem{Base: s, Index: at, Scale: 1}, to)
	return strided(to, g.row, g.row3)[r]
}

func (g *deltaRule) read() {
	g.function("deltaRead", "(s, known, out, k, q *float32, row, rows, cols int)",
		"adds Σ k[i] s[i] to known and Σ q[i] s[i] to out, for rows of a state that are row elements apart.")
	columns := g.columns("cols")
	s, known, out, k, q, to := g.param("s"), g.param("known"), g.param("out"), g.param("k"), g.param("q"), g.GP64()
	g.rows(s, func(n int) {
		var keys, queries [4]vector
		for r := range n {
			keys[r], queries[r] = g.number(Mem{Base: k, Disp: 4 * r}), g.number(Mem{Base: q, Disp: 4 * r})
		}
		columns.each(func(at reg.Register, t *tail) {
			a, b := Mem{Base: known, Index: at, Scale: 1}, Mem{Base: out, Index: at, Scale: 1}
			x, y := g.load(a, t), g.load(b, t)
			for r := range n {
				row := g.load(g.line(s, at, to, r), t)
				g.VFMADD231PS(keys[r], row, x)
				g.VFMADD231PS(queries[r], row, y)
			}
			g.store(x, a, t)
			g.store(y, b, t)
		})
		g.ADDQ(U8(4*n), k)
		g.ADDQ(U8(4*n), q)
	})
	g.end()
}

func (g *deltaRule) value() {
	g.function("deltaValue", "(known, y, v, out *float32, fade, beta, fresh, scale float32, cols int)",
		"makes of what is known of a token's values what is written, beta (v - fade known), and puts out y = scale (fade out + fresh times that).")
	columns := g.columns("cols")
	known, y, v, out := g.param("known"), g.param("y"), g.param("v"), g.param("out")
	fade, beta, fresh, scale := g.number(g.memory("fade")), g.number(g.memory("beta")), g.number(g.memory("fresh")), g.number(g.memory("scale"))
	columns.each(func(at reg.Register, t *tail) {
		of := func(base reg.Register) Mem { return Mem{Base: base, Index: at, Scale: 1} }
		x := g.load(of(v), t)
		g.VFNMADD231PS(fade, g.load(of(known), t), x)
		x = g.mul(beta, x)
		z := g.mul(fade, g.load(of(out), t))
		g.VFMADD231PS(fresh, x, z)
		g.store(x, of(known), t)
		g.store(g.mul(scale, z), of(y), t)
	})
	g.end()
}

func (g *deltaRule) write() {
	g.function("deltaWrite", "(s, x, k, decay *float32, step, row, rows, cols int)",
		"sets s[i] = decay[i·step] s[i] + k[i] x, for rows of a state that are row elements apart.")
	columns := g.columns("cols")
	s, x, k, decay, step, to := g.param("s"), g.param("x"), g.param("k"), g.param("decay"), g.stride("step"), g.GP64()
	g.rows(s, func(n int) {
		var keys, decays [4]vector
		for r := range n {
			keys[r], decays[r] = g.number(Mem{Base: k, Disp: 4 * r}), g.number(Mem{Base: decay})
			g.ADDQ(step, decay)
		}
		columns.each(func(at reg.Register, t *tail) {
			fresh := g.load(Mem{Base: x, Index: at, Scale: 1}, t)
			for r := range n {
				line := g.line(s, at, to, r)
				row := g.mul(decays[r], g.load(line, t))
				g.VFMADD231PS(keys[r], fresh, row)
				g.store(row, line, t)
			}
		})
		g.ADDQ(U8(4*n), k)
	})
	g.end()
}

func (g *deltaRule) pairs() {
	g.function("deltaPairs", "(w, decay, k, q, keys, queries *float32, row, rows, cols int)",
		"multiplies rows w by decay, element by element, and sets keys[i] = k·w[i] and queries[i] = q·w[i].")
	columns := g.columns("cols")
	w, decay, k, q := g.param("w"), g.param("decay"), g.param("k"), g.param("q")
	keys, queries, to := g.param("keys"), g.param("queries"), g.GP64()
	g.rows(w, func(n int) {
		var sums [8]vector
		for i := range 2 * n {
			sums[i] = g.zero()
		}
		columns.each(func(at reg.Register, t *tail) {
			of := func(base reg.Register) vector { return g.load(Mem{Base: base, Index: at, Scale: 1}, t) }
			by, key, query := of(decay), of(k), of(q)
			for r := range n {
				line := g.line(w, at, to, r)
				row := g.mul(by, g.load(line, t))
				g.store(row, line, t)
				g.VFMADD231PS(key, row, sums[r])
				g.VFMADD231PS(query, row, sums[n+r])
			}
		})
		for r := range n {
			g.VMOVSS(g.across(sums[r], g.VADDPS, 32), Mem{Base: keys, Disp: 4 * r})
			g.VMOVSS(g.across(sums[n+r], g.VADDPS, 32), Mem{Base: queries, Disp: 4 * r})
		}
		g.ADDQ(U8(4*n), keys)
		g.ADDQ(U8(4*n), queries)
	})
	g.end()
}
