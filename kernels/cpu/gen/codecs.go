package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// codecs generates what blocks take: the largest magnitude, and codes of n elements,
// which fill vectors and are not 0.
func codecs(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := newVec(c, set)
		g.function("largest", "(y *uint32, x *float32, n int)", "gives in each lane the largest of the bits of magnitudes of n elements, which fill vectors and are not 0.")
		y, x, n := g.param("y"), g.param("x"), g.param("n")
		most, mask := g.zero(), g.copy(g.bits(0x7fffffff))
		g.Label("vectors")
		v := g.load(Mem{Base: x}, nil)
		g.and(mask, v, v)
		g.VPMAXUD(v, most, most)
		g.ADDQ(U8(4*set.lanes), x)
		g.SUBQ(U8(set.lanes), n)
		g.JNZ(LabelRef("vectors"))
		g.VMOVUPS(most, Mem{Base: y})
		g.end()

		g.coding("toInt8", toCodes, "gives n elements times by, to nearest and ties to even; they fill vectors and are not 0.", 4*set.lanes, set.lanes, set.lanes, func(x, y Mem, by vector) {
			v := g.load(x, nil)
			g.VMULPS(by, v, v)
			g.VCVTPS2DQ(v, v)
			if g.wide() {
				g.VPMOVSDB(v, y)
				return
			}
			g.VPACKSSDW(v, v, v)
			g.VPERMQ(U8(0x08), v, v)
			g.VPACKSSWB(v.AsX(), v.AsX(), v.AsX())
			g.VMOVQ(v.AsX(), y)
		})
		g.coding("fromInt8", fromCodes, "gives n codes times by; they fill vectors and are not 0.", set.lanes, 4*set.lanes, set.lanes, func(x, y Mem, by vector) {
			v := g.new()
			g.VPMOVSXBD(x, v)
			g.VCVTDQ2PS(v, v)
			g.VMULPS(by, v, v)
			g.VMOVUPS(v, y)
		})
	}
	smallCodecs(c)
}

const (
	toCodes   = "(y *byte, x *float32, by *float32, n int)"
	fromCodes = "(y *float32, x *byte, by *float32, n int)"
)

// coding writes a loop whose step takes n elements: it reads read bytes, and writes write bytes.
func (g *vec) coding(name, signature, doc string, read, write, n int, step func(x, y Mem, by vector)) {
	g.function(name, signature, doc)
	y, x, left := g.param("y"), g.param("x"), g.param("n")
	by := g.number(Mem{Base: g.param("by")})
	g.Label("vectors")
	step(Mem{Base: x}, Mem{Base: y}, by)
	g.ADDQ(U8(read), x)
	g.ADDQ(U8(write), y)
	g.SUBQ(U8(n), left)
	g.JNZ(LabelRef("vectors"))
	g.end()
}

// small is a format of 8 bits: how many of them are its mantissa's, the bias of its exponent, and
// its largest number.
type small struct {
	name           string
	mantissa, bias int
	largest        float32
}

var smalls = []small{{"E4M3", 3, 7, 448}, {"E5M2", 2, 15, 57344}}

// smallCodecs generates blocks of int4 and of fp8, by vectors of AVX2, which is enough for memory.
func smallCodecs(c *build.Context) {
	g := newVec(c, avx2)
	g.coding("toInt4", toCodes, "gives n elements times by, to nearest and ties to even, with 8 added and two in a byte; n is a multiple of 8, and not 0.", 32, 4, 8, func(x, y Mem, by vector) {
		v := g.load(x, nil)
		g.VMULPS(by, v, v)
		g.VCVTPS2DQ(v, v)
		g.VPADDD(g.bits(8), v, v)
		g.toBytes(v)
		g.VPMADDUBSW(g.bits(0x10011001), v.AsX(), v.AsX())
		g.VPACKUSWB(v.AsX(), v.AsX(), v.AsX())
		g.VMOVD(v.AsX(), y)
	})
	g.coding("fromInt4", fromCodes, "gives n codes times by; n is a multiple of 16, and not 0.", 8, 64, 16, func(x, y Mem, by vector) {
		low, high := g.XMM(), g.XMM()
		g.VPMOVZXBW(x, low)
		g.VPAND(g.bits(0x00f000f0), low, high)
		g.VPAND(g.bits(0x000f000f), low, low)
		g.VPSLLW(U8(4), high, high)
		g.VPOR(high, low, low)
		g.VPSRLDQ(U8(8), low, high)
		for i, codes := range []Op{low, high} {
			v := g.new()
			g.VPMOVZXBD(codes, v)
			g.VPSUBD(g.bits(8), v, v)
			g.VCVTDQ2PS(v, v)
			g.VMULPS(by, v, v)
			g.VMOVUPS(v, y.Offset(32*i))
		}
	})
	for _, f := range smalls {
		g.coding("to"+f.name, toCodes, "sets y to n elements times by, to the nearest code, ties to even, and to the largest at most; n is a multiple of 8, and not 0.", 32, 8, 8, func(x, y Mem, by vector) {
			v := g.load(x, nil)
			g.VMULPS(by, v, v)
			g.roundSmall(f, v)
			g.VMOVQ(v.AsX(), y)
		})
		g.coding("from"+f.name, fromCodes, "gives n codes times by; n is a multiple of 8, and not 0.", 8, 32, 8, func(x, y Mem, by vector) {
			codes, v := g.XMM(), g.new()
			g.VPMOVZXBW(x, codes)
			if f.mantissa == 2 { // f16, cut short
				g.VPSLLW(U8(8), codes, codes)
				g.VCVTPH2PS(codes, v)
			} else { // f16 with another bias, but for NaN
				sign, nan := g.XMM(), g.XMM()
				g.VPAND(g.bits(0x00800080), codes, sign)
				g.VPSLLW(U8(8), sign, sign)
				g.VPAND(g.bits(0x007f007f), codes, codes)
				g.VPCMPEQW(g.bits(0x007f007f), codes, nan)
				g.VPSLLW(U8(7), codes, codes)
				g.VPOR(sign, codes, codes)
				g.VPOR(nan, codes, codes)
				g.VCVTPH2PS(codes, v)
				g.VMULPS(g.c(256), v, v)
			}
			g.VMULPS(by, v, v)
			g.VMOVUPS(v, y)
		})
	}
}

// roundSmall makes codes of a vector, in the lower half of its lower half: below the least normal
// number multiples of the least, above it the upper bits, rounded.
func (g *vec) roundSmall(f small, v vector) {
	const less = 1
	shift := uint64(23 - f.mantissa)
	sign, size, normal, below := g.new(), g.new(), g.new(), g.new()
	g.VPSRLD(U8(24), v, sign)
	g.VPAND(g.bits(0x80), sign, sign)
	g.VANDPS(g.bits(0x7fffffff), v, size)
	g.VMINPS(g.c(f.largest), size, size)
	g.VPSRLD(U8(shift), size, normal)
	g.VPAND(g.bits(1), normal, normal)
	g.VPADDD(size, normal, normal)
	g.VPADDD(g.bits(1<<(shift-1)-1), normal, normal)
	g.VPSRLD(U8(shift), normal, normal)
	g.VPSUBD(g.bits(uint32(127-f.bias)<<f.mantissa), normal, normal)
	g.VCMPPS(U8(less), g.bits(uint32(128-f.bias)<<23), size, below)
	g.VMULPS(g.bits(uint32(127+f.bias-1+f.mantissa)<<23), size, size)
	g.VCVTPS2DQ(size, size)
	g.VBLENDVPS(below, size, normal, v)
	g.VPOR(sign, v, v)
	g.toBytes(v)
}

// toBytes packs 8 lanes, of 0 to 255, into the lowest 8 bytes.
func (g *vec) toBytes(v vector) {
	g.VPACKUSDW(v, v, v)
	g.VPERMQ(U8(0x08), v, v)
	g.VPACKUSWB(v.AsX(), v.AsX(), v.AsX())
}
