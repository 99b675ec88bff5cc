package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rounded are offsets in what is made of the activations of a block, after the numbers: the scale
// in f32, and sums of numbers. Those of 32 have theirs in f32; of 256 there are those of each 16
// and of each 32, in words.
type rounded struct {
	scale, sum, halves, sums, bytes int
}

func roundedOf(elems int) rounded {
	return rounded{scale: elems, sum: elems + 4, halves: elems + 4, sums: elems + 36, bytes: elems + elems/4}
}

// round rounds blocks of activations to 8 bits.
func (g *integerGenerator) round(elems int) {
	g.function(fmt.Sprintf("round%dBlocks", elems), "(to *byte, x *float32, blocks int)", fmt.Sprintf("rounds blocks of %d activations to 8 bits, as roundBlock does.", elems))
	to, x, n := g.param("to"), g.param("x"), g.param("blocks")
	l := roundedOf(elems)
	magnitude, most, least := g.YMM(), g.YMM(), g.YMM()
	g.VBROADCASTSS(g.bits(1<<31-1).(Mem), magnitude)
	g.VBROADCASTSS(g.c(127).(Mem), most)
	g.VBROADCASTSS(g.c(0x1p-100).(Mem), least)
	g.Label("block")
	largest, at, end := g.zero(), g.GP64(), g.GP64()
	g.MOVQ(x, at)
	g.LEAQ(Mem{Base: x, Disp: 4 * elems}, end)
	g.Label("largest")
	for i := 0; i < 32; i += 8 {
		a := g.YMM()
		g.VPAND(Mem{Base: at, Disp: 4 * i}, magnitude, a)
		g.VPMAXSD(a, largest, largest)
	}
	g.ADDQ(U32(128), at)
	g.CMPQ(at, end)
	g.JNE(LabelRef("largest"))
	for half := range 2 {
		other := g.YMM()
		if half == 0 {
			g.VPERM2I128(U8(1), largest, largest, other)
		} else {
			g.VPSHUFD(U8(0x4e), largest, other)
		}
		g.VPMAXSD(other, largest, largest)
	}
	other := g.YMM()
	g.VPSHUFD(U8(0xb1), largest, other)
	g.VPMAXSD(other, largest, largest)
	inverse, scale := g.YMM(), g.YMM()
	g.VCMPPS(U8(5), least, largest, other) // not less
	g.VDIVPS(largest, most, inverse)
	g.VDIVPS(most, largest, scale)
	g.VANDPS(other, inverse, inverse)
	g.VANDPS(other, scale, scale)
	g.VMOVSS(scale.AsX(), Mem{Base: to, Disp: l.scale})
	if elems == 32 {
		total := g.roundPart(Mem{Base: to}, Mem{Base: x}, inverse)
		g.VPHADDD(total, total, total)
		g.VCVTDQ2PS(total, total)
		g.VMOVSS(total, Mem{Base: to, Disp: l.sum})
		g.ADDQ(U32(128), x)
	} else {
		i := g.GP64()
		g.MOVQ(to, at)
		g.XORQ(i, i)
		g.Label("part")
		halves := g.roundPart(Mem{Base: at}, Mem{Base: x}, inverse)
		g.VPACKSSDW(halves, halves, halves)
		g.VMOVD(halves, Mem{Base: to, Index: i, Scale: 4, Disp: l.halves})
		g.VPMADDWD(g.ones(), halves, halves)
		g.VPACKSSDW(halves, halves, halves)
		g.VPEXTRW(U8(0), halves, Mem{Base: to, Index: i, Scale: 2, Disp: l.sums})
		g.ADDQ(U8(32), at)
		g.ADDQ(U32(128), x)
		g.INCQ(i)
		g.CMPQ(i, U8(uint8(elems/32)))
		g.JNE(LabelRef("part"))
	}
	g.ADDQ(U32(uint32(l.bytes)), to)
	g.DECQ(n)
	g.JNZ(LabelRef("block"))
	g.end()
}

// roundPart rounds 32 activations. It returns the sums of both halves in lanes.
func (g *integerGenerator) roundPart(to, x Mem, inverse vector) reg.VecVirtual {
	order := g.data(constant{0, 32}, "integerOrder", func(i int) (Constant, bool) {
		return U32([]uint32{0, 4, 1, 5, 2, 6, 3, 7}[i%8]), i < 8
	})
	var v [4]vector
	for i := range v {
		v[i] = g.YMM()
		g.VMULPS(x.Offset(32*i), inverse, v[i])
		g.VCVTPS2DQ(v[i], v[i])
	}
	lo, hi, numbers, at := g.YMM(), g.YMM(), g.YMM(), g.YMM()
	g.VMOVDQU(order, at)
	g.VPACKSSDW(v[1], v[0], lo)
	g.VPACKSSDW(v[3], v[2], hi)
	g.VPACKSSWB(hi, lo, numbers)
	g.VPERMD(numbers, at, numbers)
	g.VMOVDQU(numbers, to)
	var sums [2]vector
	for i, s := range []vector{lo, hi} {
		sums[i] = g.YMM()
		g.VPMADDWD(g.ones(), s, sums[i])
	}
	sum, upper := g.YMM(), g.XMM()
	g.VPHADDD(sums[1], sums[0], sum)
	g.VPHADDD(sum, sum, sum)
	g.VEXTRACTI128(U8(1), sum, upper)
	g.VPADDD(upper, sum.AsX(), upper)
	return upper
}
