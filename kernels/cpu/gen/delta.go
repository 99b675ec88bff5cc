package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// delta generates a token of the gated delta rule, for columns of a head's state that are in the
// lanes: four vectors of them, or the first of one. Rows are summed in order.
func delta(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		for _, vectors := range []int{4, 1} {
			g := &deltaRule{vec: newVec(c, set), columns: vectors}
			g.write()
		}
	}
}

type deltaRule struct {
	*vec
	columns    int // vectors of them
	part       *tail
	known, out []vector // Sᵀk and Sᵀq; then known is what is written
}

func (g *deltaRule) write() {
	name, which, more := "delta", "4 vectors of columns", ""
	if g.columns == 1 {
		name, which, more = "deltaPart", "columns that fill no vector", ", columns"
	}
	g.function(name, "(s, v, y, k, readK, readQ, decay *float32, fade, beta, fresh, scale float32, row, rows, step"+more+" int)",
		"takes "+which+" of a state past a token: x = beta (v - fade Σ readK[i] s[i]), y = scale (fade Σ readQ[i] s[i] + fresh x), s[i] = decay[i·step] s[i] + k[i] x.",
		"Rows of s are row elements apart.")
	if g.columns == 1 {
		t := g.tail(g.param("columns"))
		g.part = &t
	}
	for range g.columns {
		g.known, g.out = append(g.known, g.zero()), append(g.out, g.zero())
	}
	row, rows := g.param("row"), g.param("rows")
	g.SHLQ(U8(2), row)
	g.read(row, rows)
	g.token()
	g.change(row, rows)
	g.end()
}

// line is vector j of columns.
func (g *deltaRule) line(base reg.Register, j int) Mem { return Mem{Base: base, Disp: j * g.bytes()} }

// number is a float in all lanes.
func (g *deltaRule) number(from Mem) vector {
	v := g.new()
	g.VBROADCASTSS(from, v)
	return v
}

// read sums what the rows have for the key and the query.
func (g *deltaRule) read(row, rows reg.Register) {
	s, k, q, i := g.param("s"), g.param("readK"), g.param("readQ"), g.GP64()
	g.XORQ(i, i)
	g.Label("read")
	key, query := g.number(Mem{Base: k, Index: i, Scale: 4}), g.number(Mem{Base: q, Index: i, Scale: 4})
	for j := range g.columns {
		x := g.load(g.line(s, j), g.part)
		g.VFMADD231PS(key, x, g.known[j])
		g.VFMADD231PS(query, x, g.out[j])
	}
	g.ADDQ(row, s)
	g.INCQ(i)
	g.CMPQ(i, rows)
	g.JLT(LabelRef("read"))
}

// token works out what is written, and what is put out.
func (g *deltaRule) token() {
	v, y := g.param("v"), g.param("y")
	fade, beta, fresh, scale := g.number(g.memory("fade")), g.number(g.memory("beta")), g.number(g.memory("fresh")), g.number(g.memory("scale"))
	for j := range g.columns {
		x := g.load(g.line(v, j), g.part)
		g.VFNMADD231PS(fade, g.known[j], x)
		g.VMULPS(beta, x, g.known[j])
		g.VMULPS(fade, g.out[j], g.out[j])
		g.VFMADD231PS(fresh, g.known[j], g.out[j])
		g.VMULPS(scale, g.out[j], g.out[j])
		g.store(g.out[j], g.line(y, j), g.part)
	}
}

// change lets the rows decay and adds what is written.
func (g *deltaRule) change(row, rows reg.Register) {
	s, k, decay, step := g.param("s"), g.param("k"), g.param("decay"), g.param("step")
	g.SHLQ(U8(2), step)
	g.Label("change")
	key, by := g.number(Mem{Base: k}), g.number(Mem{Base: decay})
	for j := range g.columns {
		x := g.mul(by, g.load(g.line(s, j), g.part))
		g.VFMADD231PS(key, g.known[j], x)
		g.store(x, g.line(s, j), g.part)
	}
	g.ADDQ(row, s)
	g.ADDQ(U8(4), k)
	g.ADDQ(step, decay)
	g.DECQ(rows)
	g.JNZ(LabelRef("change"))
}
