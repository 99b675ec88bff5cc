package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// codecs generates what blocks of int8 take: the largest magnitude, and codes of n elements,
// which fill vectors and are not 0.
func codecs(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := newVec(c, set)
		g.held = map[constant]vector{}
		g.function("largest", "(y *uint32, x *float32, n int)", "gives in each lane the largest of the bits of magnitudes of n elements, which fill vectors and are not 0.")
		y, x, n := g.param("y"), g.param("x"), g.param("n")
		most, mask := g.zero(), g.copy(g.bits(0x7fffffff))
		g.Label("vectors")
		v := g.load(Mem{Base: x}, nil)
		if g.wide() {
			g.VPANDD(mask, v, v)
		} else {
			g.VPAND(mask, v, v)
		}
		g.VPMAXUD(v, most, most)
		g.ADDQ(U8(4*set.lanes), x)
		g.SUBQ(U8(set.lanes), n)
		g.JNZ(LabelRef("vectors"))
		g.VMOVUPS(most, Mem{Base: y})
		g.end()

		g.held = map[constant]vector{}
		g.function("toInt8", "(y *byte, x *float32, by *float32, n int)", "gives n elements times by, to nearest and ties to even; they fill vectors and are not 0.")
		y, x, n = g.param("y"), g.param("x"), g.param("n")
		by := g.new()
		g.VBROADCASTSS(Mem{Base: g.param("by")}, by)
		g.Label("vectors")
		v = g.load(Mem{Base: x}, nil)
		g.VMULPS(by, v, v)
		g.VCVTPS2DQ(v, v)
		if g.wide() {
			g.VPMOVSDB(v, Mem{Base: y})
		} else {
			g.VPACKSSDW(v, v, v)
			g.VPERMQ(U8(0x08), v, v)
			g.VPACKSSWB(v.AsX(), v.AsX(), v.AsX())
			g.VMOVQ(v.AsX(), Mem{Base: y})
		}
		g.ADDQ(U8(4*set.lanes), x)
		g.ADDQ(U8(set.lanes), y)
		g.SUBQ(U8(set.lanes), n)
		g.JNZ(LabelRef("vectors"))
		g.end()

		g.held = map[constant]vector{}
		g.function("fromInt8", "(y *float32, x *byte, by *float32, n int)", "gives n codes times by; they fill vectors and are not 0.")
		y, x, n = g.param("y"), g.param("x"), g.param("n")
		by = g.new()
		g.VBROADCASTSS(Mem{Base: g.param("by")}, by)
		g.Label("vectors")
		v = g.new()
		g.VPMOVSXBD(Mem{Base: x}, v)
		g.VCVTDQ2PS(v, v)
		g.VMULPS(by, v, v)
		g.VMOVUPS(v, Mem{Base: y})
		g.ADDQ(U8(set.lanes), x)
		g.ADDQ(U8(4*set.lanes), y)
		g.SUBQ(U8(set.lanes), n)
		g.JNZ(LabelRef("vectors"))
		g.end()
	}
}
