package main

import . "github.com/mmcloughlin/avo/operand"

// streamAhead is how many bytes of a run are fetched ahead.
const streamAhead = 768

// streams generates the product of one token with rows that are far apart: four at a time, each of
// which goes on where the one before it ends, so that memory is read in four long runs.
func (g *product) streams() {
	g.function("stream"+g.format.Name, "(w *"+g.format.Element+", ws, apart int, x *float32, y *float32, ys, k, depth, groups int)",
		"adds x·w[r] to y[r], for groups of 4 rows of k elements: rows of a group are apart elements apart and those of y ys, groups ws and 1. Sums are of depth elements, and added up in order.")
	line, ws := g.param("w"), g.strideOf(g.format, "ws")
	g.w = g.fourLines(g.GP64(), g.strideOf(g.format, "apart"))
	g.x = lines{base: g.GP64()}
	y, ys := g.param("y"), g.stride("ys")
	out := strided(y, ys, g.triple(ys))
	g.halves()
	left, n := g.GP64(), g.GP64()
	g.Label("group")
	g.MOVQ(line, g.w.base)
	g.Load(g.Param("x"), g.x.base)
	g.Load(g.Param("k"), left)
	total := g.gathered(out)
	g.Label("depth")
	g.Load(g.Param("depth"), n)
	g.CMPQ(left, n)
	g.CMOVQLT(left, n)
	g.SUBQ(n, left)
	sums := g.vectors(n, g.fetchRuns)
	g.masked(sums, n)
	g.VADDPS(total, g.reduce(sums)[0].AsX(), total)
	g.TESTQ(left, left)
	g.JNZ(LabelRef("depth"))
	g.scatter(total, out)
	g.ADDQ(ws, line)
	g.ADDQ(U8(4), y)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}

// fetchRuns fetches lines of the runs. Vectors of f32 are more work.
func (g *product) fetchRuns() {
	for r := 0; r < g.rows && g.format != f32; r++ {
		g.PREFETCHT0(g.w.at(r).Offset(streamAhead))
	}
}
