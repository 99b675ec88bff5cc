package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unpacks generates what unpacks 8 rows of weights of each format into a panel.
func (g *integerGenerator) unpacks() {
	g.unpackEights()
	g.unpackNibbles("unpackQ4K", superFours, 16, 0)
	g.unpackNibbles("unpackQ5K", superFives, 48, 16)
	g.unpackSixes()
	for _, l := range codedBlocks {
		g.unpackCoded(l)
	}
	g.unpackIQ4XS()
}

// unpack begins what unpacks 8 rows of weights.
func (g *integerGenerator) unpack(name string) {
	g.function(name, "(to *byte, from *byte, ws int, blocks int, ahead int)", "unpacks blocks of 8 rows, which are ws bytes apart, into a panel, and fetches those that are ahead bytes further on.")
	g.to, g.from, g.ws, g.blocks = g.param("to"), g.param("from"), g.param("ws"), g.param("blocks")
	g.ws3, g.upper = g.GP64(), g.GP64()
	g.LEAQ(Mem{Base: g.ws, Index: g.ws, Scale: 2}, g.ws3)
	g.LEAQ(Mem{Base: g.from, Index: g.ws, Scale: 4}, g.upper)
	g.ahead, g.upperAhead = g.param("ahead"), g.GP64()
	g.LEAQ(Mem{Base: g.upper, Index: g.ahead, Scale: 1}, g.upperAhead)
	g.ADDQ(g.from, g.ahead)
	g.Label("block")
}

// next goes on to the next block: of some bytes, and of some of the panel.
func (g *integerGenerator) next(bytes, panel int) {
	for r := range 8 {
		for line := 0; line < bytes; line += 64 {
			g.PREFETCHT0(g.rowAt(g.ahead, g.upperAhead, r, line))
		}
	}
	for _, at := range []reg.Register{g.from, g.upper, g.ahead, g.upperAhead} {
		g.ADDQ(U32(uint32(bytes)), at)
	}
	g.ADDQ(U32(uint32(panel)), g.to)
	g.DECQ(g.blocks)
	g.JNZ(LabelRef("block"))
	g.end()
}

// halfTwice writes a loop over the halves of parts: 16 bytes of codes, and half of the panel's 32.
func (g *integerGenerator) halfTwice(half func()) {
	left := g.GP64()
	g.MOVQ(U32(2), left)
	g.Label("part")
	half()
	g.ADDQ(U32(16), g.from)
	g.ADDQ(U32(16), g.upper)
	g.ADDQ(U32(128), g.to)
	g.DECQ(left)
	g.JNZ(LabelRef("part"))
	g.SUBQ(U32(32), g.from)
	g.SUBQ(U32(32), g.upper)
	g.SUBQ(U32(256), g.to)
}

// row is a byte of a row's block.
func (g *integerGenerator) row(r, disp int) Mem { return g.rowAt(g.from, g.upper, r, disp) }

func (g *integerGenerator) rowAt(base, upper reg.Register, r, disp int) Mem {
	if r >= 4 {
		base = upper
	}
	m := strided(base, g.ws, g.ws3)[r%4]
	m.Disp = disp
	return m
}

// quads are 16 bytes of each row, 4 of all rows in a vector.
func (g *integerGenerator) quads(disp int) (v [4]vector) {
	var a [4]vector
	for i := range a {
		a[i] = g.YMM()
		g.VBROADCASTI128(g.row(i, disp), a[i])
		g.VINSERTI128(U8(1), g.row(i+4, disp), a[i], a[i])
	}
	var t [4]vector
	for i := range t {
		t[i], v[i] = g.YMM(), g.YMM()
	}
	for i := range 2 {
		g.VPUNPCKLDQ(a[2*i+1], a[2*i], t[2*i])
		g.VPUNPCKHDQ(a[2*i+1], a[2*i], t[2*i+1])
	}
	for i := range 2 {
		g.VPUNPCKLQDQ(t[2+i], t[i], v[2*i])
		g.VPUNPCKHQDQ(t[2+i], t[i], v[2*i+1])
	}
	return v
}

// bits are some of v, shifted to the right or (below 0) to the left, under a mask of bytes.
func (g *integerGenerator) under(v vector, right int, mask Op) vector {
	out := g.YMM()
	switch {
	case right > 0:
		g.VPSRLW(U8(uint8(right)), v, out)
		v = out
	case right < 0:
		g.VPSLLW(U8(uint8(-right)), v, out)
		v = out
	}
	g.VPAND(mask, v, out)
	return out
}

// store stores a vector of a panel.
func (g *integerGenerator) store(v vector, at int) { g.VMOVDQU(v, Mem{Base: g.to, Disp: at}) }

// halves are numbers in f16 of all rows, in f32.
func (g *integerGenerator) halves(disp int) vector {
	words, out := g.XMM(), g.YMM()
	g.VPXOR(words, words, words)
	for r := range 8 {
		g.VPINSRW(U8(uint8(r)), g.row(r, disp), words, words)
	}
	g.VCVTPH2PS(words, out)
	return out
}

// lower are the lower 16 bits of lanes as f16, in f32.
func (g *integerGenerator) lower(v vector) vector {
	out := g.YMM()
	g.VPBLENDW(U8(0xaa), g.zero(), v, out)
	g.VPACKUSDW(out, out, out)
	g.VPERMQ(U8(8), out, out)
	g.VCVTPH2PS(out.AsX(), out)
	return out
}

func (g *integerGenerator) unpackEights() {
	g.unpack("unpackQ8")
	for half := range 2 {
		for i, v := range g.quads(2 + 16*half) {
			g.store(v, 128*half+32*i)
		}
	}
	g.store(g.halves(0), eights.scale())
	g.next(34, eights.bytes())
}

// unpackNibbles unpacks blocks of 256 codes of 4 bits, and a fifth from byte high on, in parts with
// a scale and a least number of 6 bits each.
func (g *integerGenerator) unpackNibbles(name string, kind codeKind, low, high int) {
	g.unpack(name)
	g.superScales(kind)
	four := g.YMM()
	g.VMOVDQU(g.mask(0x0f), four)
	for half := range 2 {
		var fifth [4]vector
		if high > 0 {
			fifth = g.quads(high + 16*half)
		}
		for pair := range 4 {
			for i, v := range g.quads(low + 32*pair + 16*half) {
				for nibble := range 2 {
					k := 2*pair + nibble
					code := g.under(v, 4*nibble, four)
					if high > 0 {
						g.VPOR(g.under(fifth[i], k-4, g.mask(0x10)), code, code)
					}
					g.store(code, kind.stride()*k+128*half+32*i)
				}
			}
		}
	}
	g.next(low+128, kind.bytes())
}

// superScales are the scales and the least numbers of the 8 parts of a block, in 6 bits each.
func (g *integerGenerator) superScales(kind codeKind) {
	head := g.quads(0)
	d, m := g.lower(head[0]), g.YMM()
	g.VPSRLD(U8(16), head[0], m)
	m = g.lower(m)
	g.VXORPS(g.bits(1<<31), m, m)
	g.store(d, kind.scale())
	g.store(m, kind.scale()+32)
	six := g.bits(63)
	for least := range 2 {
		var even vector
		for k := range 8 {
			v, from := g.YMM(), head[1+least]
			if k < 4 {
				g.VPSRLD(U8(uint8(8*k)), from, v)
				g.VPAND(six, v, v)
			} else {
				// 4 bits of the third, and 2 above them
				j, upper := k-4, g.YMM()
				g.VPSLLD(U8(uint8(28-8*j-4*least)), head[3], v)
				g.VPSRLD(U8(28), v, v)
				g.VPSLLD(U8(uint8(24-8*j)), from, upper)
				g.VPSRLD(U8(30), upper, upper)
				g.VPSLLD(U8(4), upper, upper)
				g.VPOR(upper, v, v)
			}
			switch {
			case least == 0:
				g.store(g.words(v, v), kind.scaleOf(k))
			case k%2 == 0:
				even = v
			default:
				g.store(g.words(even, v), kind.pairs()+16*(k-1))
			}
		}
	}
}

// words are the lower words of the lanes of two vectors, which then are a lane.
func (g *integerGenerator) words(low, high vector) vector {
	out := g.YMM()
	g.VPSLLD(U8(16), high, out)
	g.VPBLENDW(U8(0x55), low, out, out)
	return out
}

// unpackSixes unpacks blocks of 256 codes of 6 bits, less 32, in parts of 16 with a scale each.
func (g *integerGenerator) unpackSixes() {
	g.unpack("unpackQ6K")
	g.store(g.halves(208), superSixes.scale())
	for i, v := range g.quads(192) {
		var even vector
		for j := range 4 {
			s := g.YMM()
			g.VPSLLD(U8(uint8(24-8*j)), v, s)
			g.VPSRAD(U8(24), s, s)
			g.store(g.words(s, s), superSixes.scaleOf(4*i+j))
			if j%2 == 0 {
				even = s
				continue
			}
			g.store(g.words(even, s), superSixes.pairs()+32*(2*i+j/2))
		}
	}
	four, two := g.YMM(), g.YMM()
	g.VMOVDQU(g.mask(0x0f), four)
	g.VMOVDQU(g.mask(0x30), two)
	g.halfTwice(func() {
		for n := range 2 {
			high := g.quads(128 + 32*n)
			for odd := range 2 {
				for i, v := range g.quads(64*n + 32*odd) {
					for nibble := range 2 {
						k := 2*nibble + odd
						code := g.under(v, 4*nibble, four)
						g.VPOR(g.under(high[i], 2*k-4, two), code, code)
						g.store(code, superSixes.stride()*(4*n+k)+32*i)
					}
				}
			}
		}
	})
	g.next(210, superSixes.bytes())
}

// unpackCoded unpacks blocks of 32 codes with a scale in f16.
func (g *integerGenerator) unpackCoded(l coded) {
	g.unpack("unpack" + l.name)
	g.nibbles(l.codes, 0, l)
	d := g.halves(0)
	g.store(d, fours.scale())
	switch {
	case l.least > 0:
		g.store(g.halves(l.least), fours.scale()+32)
	case l.offset > 0:
		offset := g.YMM()
		g.VBROADCASTSS(g.c(-l.offset).(Mem), offset)
		g.VMULPS(offset, d, d)
		g.store(d, fours.scale()+32)
	}
	bytes := fours.bytes()
	if l.levels {
		bytes = eights.bytes()
	}
	g.next(l.size, bytes)
}

// nibbles unpacks 32 codes of which the lower halves of bytes are the first.
func (g *integerGenerator) nibbles(from, to int, l coded) {
	levels := g.YMM()
	if l.levels {
		g.VMOVDQU(g.levels(), levels)
	}
	var high, spread, bits vector
	if l.high > 0 {
		high, spread, bits = g.YMM(), g.YMM(), g.YMM()
		upper := g.XMM()
		g.VPBROADCASTD(g.row(0, l.high), high)
		g.VMOVD(g.row(4, l.high), upper)
		for r := 1; r < 4; r++ {
			g.VPINSRD(U8(uint8(r)), g.row(r, l.high), high.AsX(), high.AsX())
			g.VPINSRD(U8(uint8(r)), g.row(r+4, l.high), upper, upper)
		}
		g.VINSERTI128(U8(1), upper, high, high)
		g.VMOVDQU(g.data(constant{5, 32}, "integerSpread", func(i int) (Constant, bool) { return U32(uint32(i%4) * 0x04040404), i < 8 }), spread)
		g.VMOVDQU(g.data(constant{6, 32}, "integerBits", func(i int) (Constant, bool) { return U32(0x08040201), i < 8 }), bits)
	}
	for i, v := range g.quads(from) {
		for nibble := range 2 {
			code := g.under(v, 4*nibble, g.mask(0x0f))
			switch {
			case l.levels:
				g.VPSHUFB(code, levels, code)
			case l.high > 0:
				// the lowest byte of what is left of the bits, in all four of a lane
				fifth := high
				if shift := 16*nibble + 4*i; shift > 0 {
					fifth = g.YMM()
					g.VPSRLD(U8(uint8(shift)), high, fifth)
				}
				each := g.YMM()
				g.VPSHUFB(spread, fifth, each)
				g.VPAND(bits, each, each)
				g.VPCMPEQB(bits, each, each)
				g.VPAND(g.mask(0x10), each, each)
				g.VPOR(each, code, code)
			}
			g.store(code, to+128*nibble+32*i)
		}
	}
}

// levels are those of IQ4.
func (g *integerGenerator) levels() Mem {
	return g.data(constant{4, 32}, "integerLevels", func(i int) (Constant, bool) {
		return I8([]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}[i%16]), i < 32
	})
}

// unpackIQ4XS unpacks blocks of 8 parts of levels with a scale of 6 bits, less 32, each.
func (g *integerGenerator) unpackIQ4XS() {
	g.unpack("unpackIQ4XS")
	head, offset := g.quads(0), g.bits(1<<32-32)
	g.store(g.lower(head[0]), superEights.scale())
	for k := range 8 {
		s, upper := g.YMM(), g.YMM()
		g.VPSLLD(U8(uint8(28-4*k)), head[1], s)
		g.VPSRLD(U8(28), s, s)
		g.VPSLLD(U8(uint8(14-2*k)), head[0], upper)
		g.VPSRLD(U8(30), upper, upper)
		g.VPSLLD(U8(4), upper, upper)
		g.VPOR(upper, s, s)
		g.VPADDD(offset, s, s)
		g.store(g.words(s, s), superEights.scaleOf(k))
	}
	for k := range 8 {
		g.nibbles(8+16*k, superEights.stride()*k, coded{levels: true})
	}
	g.next(136, superEights.bytes())
}
