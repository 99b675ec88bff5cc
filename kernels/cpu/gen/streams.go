package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// streamAhead is how many bytes of a run are fetched ahead.
const streamAhead = 768

// streams generates the product of one token with rows that are far apart: four at a time, each of
// which goes on where the one before it ends, so that memory is read in four long runs.
func (g *generator) streams() {
	g.function("stream"+g.format.name, "(w *"+g.format.element+", ws, apart int, x *float32, y *float32, ys, k, depth, groups int)",
		"adds x·w[r] to y[r], for groups of 4 rows of k elements: rows of a group are apart elements apart and those of y ys, groups ws and 1. Sums are of depth elements, and added up in order.")
	line, ws := g.param("w"), g.param("ws")
	g.SHLQ(g.shift(), ws)
	g.ws = g.param("apart")
	g.SHLQ(g.shift(), g.ws)
	g.ws3 = g.triple(g.ws)
	g.y = g.param("y")
	ys := g.stride("ys")
	out := strided(g.y, ys, g.triple(ys))
	g.halves()
	g.w, g.x = g.GP64(), g.GP64()
	left, n, rest := g.GP64(), g.GP64(), g.GP64()
	g.Label("group")
	g.MOVQ(line, g.w)
	g.Load(g.Param("x"), g.x)
	g.Load(g.Param("k"), left)
	total := g.gathered(out)
	g.Label("depth")
	g.Load(g.Param("depth"), n)
	g.CMPQ(left, n)
	g.CMOVQLT(left, n)
	g.SUBQ(n, left)
	if g.format == f32 { // others have whole vectors
		g.MOVQ(n, rest)
	}
	sums := g.vectors(n, func() {
		for r := 0; r < g.rows && g.format != f32; r++ { // whose vectors are more work
			at := g.row(r)
			at.Disp = streamAhead
			g.PREFETCHT0(at)
		}
	})
	if g.format == f32 {
		g.masked(sums, rest)
	}
	g.VADDPS(total, g.reduce(sums)[0].AsX(), total)
	g.TESTQ(left, left)
	g.JNZ(LabelRef("depth"))
	g.scatter(total, out)
	g.ADDQ(ws, line)
	g.ADDQ(U8(4), g.y)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}

// gathered is four numbers that are apart in memory.
func (g *vec) gathered(at [4]Mem) reg.VecVirtual {
	v := g.XMM()
	g.VMOVSS(at[0], v)
	for i := 1; i < 4; i++ {
		g.VINSERTPS(U8(uint8(i<<4)), at[i], v, v)
	}
	return v
}

// scatter writes the four numbers of a vector.
func (g *vec) scatter(v Op, at [4]Mem) {
	g.VMOVSS(v, at[0])
	for i := 1; i < 4; i++ {
		g.VEXTRACTPS(U8(uint8(i)), v, at[i])
	}
}
