package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// convert generates what widens and rounds n elements, which fill vectors.
func convert(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := newVec(c, set)
		each := func(name, signature, doc string, from, to int, step func(from, to Mem)) {
			g.function(name, signature, doc)
			x, y, n := g.param("x"), g.param("y"), g.param("n")
			g.Label("vectors")
			step(Mem{Base: x}, Mem{Base: y})
			g.ADDQ(U8(from*set.lanes), x)
			g.ADDQ(U8(to*set.lanes), y)
			g.SUBQ(U8(set.lanes), n)
			g.JNZ(LabelRef("vectors"))
			g.end()
		}
		const wider, narrower = "(y *float32, x *uint16, n int)", "(y *uint16, x *float32, n int)"
		for _, f := range formats[1:] {
			each("widen"+f.Name, wider, "widens n elements, which fill vectors and are not 0.", 2, 4, func(from, to Mem) {
				v := g.new()
				g.widen(f, from, v)
				g.VMOVUPS(v, to)
			})
		}
		each("roundBF16", narrower, "rounds n elements, which fill vectors and are not 0, to nearest and ties to even.", 4, 2, func(from, to Mem) {
			g.roundBF16(g.load(from, nil), to)
		})
		each("roundF16", narrower, "rounds n elements, which fill vectors and are not 0, to nearest and ties to even.", 4, 2, func(from, to Mem) {
			g.VCVTPS2PH(U8(0), g.load(from, nil), to)
		})
	}
}

// roundBF16 adds half of the last place, or a little less where that is even; a NaN stays one.
func (g *vec) roundBF16(v vector, to Mem) {
	const unordered = 3
	upper, odd, y := g.new(), g.new(), g.new()
	g.VPSRLD(U8(16), v, upper)
	g.and(g.bits(1), upper, odd)
	g.VPADDD(g.bits(0x7FFF), odd, odd)
	g.VPADDD(odd, v, y)
	g.VPSRLD(U8(16), y, y)
	if g.wide() {
		nan := g.K()
		g.VCMPPS(U8(unordered), v, v, nan)
		g.VPORD(g.bits(0x40), upper, nan, y)
		g.VPMOVDW(y, to)
		return
	}
	nan := g.new()
	g.VCMPPS(U8(unordered), v, v, nan)
	g.VPOR(g.bits(0x40), upper, upper)
	g.VBLENDVPS(nan, upper, y, y)
	g.VPACKUSDW(y, y, y)
	g.VPERMQ(U8(0x08), y, y)
	g.VMOVUPS(y.AsX(), to)
}
