package main

import (
	"github.com/krait-ml/krait/kernels/cpu/gen/common"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemm generates tiles: products of 4 rows of weights, or of one, with some rows of x, with sums in
// f32. A rest of k is a vector padded with zeros; tiles of 16-bit weights take whole vectors only.
func gemm(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		for tokens := 1; tokens <= set.tokens; tokens++ {
			for _, f := range formats {
				newTile(c, set, f, 4, tokens).write()
			}
			newTile(c, set, f32, 1, tokens).write()
		}
		for _, f := range formats {
			newTile(c, set, f, 4, 1).streams()
		}
	}
}

// gemmTile is the generator of one function.
type gemmTile struct {
	product
	y     reg.Register
	ahead lines // that are fetched ahead
}

func newTile(c *build.Context, set isa, f format, rows, tokens int) *gemmTile {
	return &gemmTile{product: product{vec: newVec(c, set), format: f, rows: rows, tokens: tokens}}
}

func (g *gemmTile) write() {
	g.declare()
	g.Label("group")
	g.nextTokens()
	k := g.param("k")
	sums := g.vectors(k, g.fetchAhead)
	g.masked(sums, k)
	g.store(g.reduce(sums))
	g.next()
}

func (g *gemmTile) declare() {
	name, signature, doc := common.Tile(g.format, g.set.name, g.rows, g.tokens, "At each vector of k it fetches lines that are apart "+
		"bytes apart, the first of them ahead, and moves ahead by step; at each group it fetches near "+
		"bytes of as many rows of x from next on.")
	g.function(name, signature, doc)
	g.pointers()
}

func (g *gemmTile) pointers() {
	g.w = lines{base: g.param("w"), apart: g.strideOf(g.format, "ws")}
	if g.rows > 1 {
		g.w.apart3 = g.triple(g.w.apart)
	}
	g.x, g.y = lines{base: g.param("x")}, g.param("y")
	if g.tokens > 1 {
		g.x = g.linesFrom(g.x.base, g.stride("xs"), g.tokens)
	}
	g.ahead = g.fourLines(g.param("ahead"), g.param("apart"))
	g.SHLQ(U8(2), g.memory("ys"))
	g.halves()
}

// nextTokens fetches part of the rows of x that come after these.
func (g *gemmTile) nextTokens() {
	near, next := g.param("near"), g.param("next")
	g.TESTQ(near, near)
	g.JZ(LabelRef("fetched"))
	rows := g.linesFrom(next, g.x.apart, g.tokens)
	g.Label("fetch")
	for t := range g.tokens {
		g.PREFETCHT0(rows.at(t))
	}
	rows.move(g.ADDQ, U8(64))
	g.SUBQ(U8(64), near)
	g.JNZ(LabelRef("fetch"))
	g.MOVQ(next, g.memory("next"))
	g.Label("fetched")
}

// fetchAhead fetches lines of what comes next.
func (g *gemmTile) fetchAhead() {
	for i := range 4 {
		g.PREFETCHT0(g.ahead.at(i))
	}
	g.ADDQ(g.memory("step"), g.ahead.base)
}

// store adds the sums to the result.
func (g *gemmTile) store(sums []vector) {
	at := g.GP64()
	g.MOVQ(g.y, at)
	each := g.share()
	for t := range g.tokens {
		if t > 0 {
			g.ADDQ(g.memory("ys"), at)
		}
		s := sums[t/each].AsX()
		if t%each > 0 {
			s = g.XMM()
			if g.wide() {
				g.VEXTRACTF32X4(U8(t%each), sums[t/each], s)
			} else {
				g.VEXTRACTF128(U8(1), sums[t/each], s)
			}
		}
		y := Mem{Base: at}
		sum := g.XMM()
		if g.rows == 1 {
			g.VADDSS(y, s, sum)
			g.VMOVSS(sum, y)
		} else {
			g.VADDPS(y, s, sum)
			g.VMOVUPS(sum, y)
		}
	}
}

// next goes on to the next group of rows.
func (g *gemmTile) next() {
	back := g.strideOf(g.format, "k")
	g.ANDQ(I8(-g.set.lanes*g.format.Size), back)
	g.w.move(g.SUBQ, back)
	if g.format != f32 {
		g.ADDQ(back, back)
	}
	g.x.move(g.SUBQ, back)
	g.nextGroup()
}

// nextGroup goes on with the next group, where k begins.
func (g *gemmTile) nextGroup() {
	if g.rows == 1 {
		g.ADDQ(g.w.apart, g.w.base)
	} else {
		g.LEAQ(Mem{Base: g.w.base, Index: g.w.apart, Scale: 4}, g.w.base)
	}
	g.ADDQ(U8(4*g.rows), g.y)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}
