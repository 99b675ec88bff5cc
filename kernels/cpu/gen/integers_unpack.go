package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unpacks generates what unpacks rows of weights of each format into a panel: 8, or 16 of AVX-512.
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

// unpack begins what unpacks rows of weights.
func (g *integerGenerator) unpack(name string) {
	g.function(name, "(to *byte, from *byte, ws int, blocks int, ahead int)", fmt.Sprintf("unpacks blocks of %d rows, which are ws bytes apart, into a panel, and fetches those that are ahead bytes further on.", g.set.lanes))
	g.to, g.ws, g.blocks = g.param("to"), g.param("ws"), g.param("blocks")
	g.from = []reg.Register{g.param("from")}
	g.ws3 = g.triple(g.ws)
	for i := 1; i < g.set.lanes/4; i++ {
		r := g.GP64()
		g.LEAQ(Mem{Base: g.from[i-1], Index: g.ws, Scale: 4}, r)
		g.from = append(g.from, r)
	}
	g.ahead = g.param("ahead")
	g.Label("block")
}

// next goes on to the next block: of some bytes, and of some of the panel.
func (g *integerGenerator) next(bytes, panel int) {
	for i := range g.from {
		ahead := g.GP64()
		g.LEAQ(Mem{Base: g.from[i], Index: g.ahead, Scale: 1}, ahead)
		for _, row := range strided(ahead, g.ws, g.ws3) {
			for line := 0; line < bytes; line += 64 {
				g.PREFETCHT0(row.Offset(line))
			}
		}
	}
	g.skip(bytes)
	g.ADDQ(U32(uint32(panel)), g.to)
	g.DECQ(g.blocks)
	g.JNZ(LabelRef("block"))
	g.end()
}

// skip goes some bytes on in all rows.
func (g *integerGenerator) skip(bytes int) {
	for _, r := range g.from {
		g.ADDQ(I32(int32(bytes)), r)
	}
}

// times writes a loop that goes some bytes on in all rows, and in the panel, each time; after it
// they are where they were.
func (g *integerGenerator) times(n, bytes, panel int, body func()) {
	left := g.GP64()
	g.MOVQ(U32(uint32(n)), left)
	g.Label("part")
	body()
	g.skip(bytes)
	g.ADDQ(U32(uint32(panel)), g.to)
	g.DECQ(left)
	g.JNZ(LabelRef("part"))
	g.skip(-n * bytes)
	g.SUBQ(U32(uint32(n*panel)), g.to)
}

// row is a byte of a row's block.
func (g *integerGenerator) row(r, disp int) Mem {
	return strided(g.from[r/4], g.ws, g.ws3)[r%4].Offset(disp)
}

// quads are 16 bytes of each row, 4 of all rows in a vector.
func (g *integerGenerator) quads(disp int) (v [4]vector) {
	var a, t [4]vector
	for i := range a {
		a[i], t[i], v[i] = g.new(), g.new(), g.new()
		if g.wide() {
			g.VBROADCASTI32X4(g.row(i, disp), a[i])
			for part := 1; part < 4; part++ {
				g.VINSERTI32X4(U8(uint8(part)), g.row(i+4*part, disp), a[i], a[i])
			}
		} else {
			g.VBROADCASTI128(g.row(i, disp), a[i])
			g.VINSERTI128(U8(1), g.row(i+4, disp), a[i], a[i])
		}
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

// under are some bits of v, shifted to the right or (below 0) to the left, under a mask of bytes.
func (g *integerGenerator) under(v vector, right int, mask Op) vector {
	out := g.new()
	switch {
	case right > 0:
		g.VPSRLW(U8(uint8(right)), v, out)
		v = out
	case right < 0:
		g.VPSLLW(U8(uint8(-right)), v, out)
		v = out
	}
	g.and(mask, v, out)
	return out
}

// store stores a vector of a panel.
func (g *integerGenerator) store(v vector, at int) { g.VMOVUPS(v, Mem{Base: g.to, Disp: at}) }

// halves are numbers in f16 of all rows, in f32.
func (g *integerGenerator) halves(disp int) vector {
	words := make([]vector, g.set.lanes/8)
	for i := range words {
		words[i] = g.XMM()
		g.VPXOR(words[i], words[i], words[i])
		for r := range 8 {
			g.VPINSRW(U8(uint8(r)), g.row(8*i+r, disp), words[i], words[i])
		}
	}
	out := g.new()
	if !g.wide() {
		g.VCVTPH2PS(words[0], out)
		return out
	}
	g.VINSERTI128(U8(1), words[1], words[0].AsY(), words[0].AsY())
	g.VCVTPH2PS(words[0].AsY(), out)
	return out
}

// dwords are 4 bytes of all rows.
func (g *integerGenerator) dwords(disp int) vector {
	out := g.new()
	for part := range g.set.lanes / 4 {
		v := out.AsX()
		if part > 0 {
			v = g.XMM()
		}
		g.VMOVD(g.row(4*part, disp), v)
		for r := 1; r < 4; r++ {
			g.VPINSRD(U8(uint8(r)), g.row(4*part+r, disp), v, v)
		}
		switch {
		case part > 0 && g.wide():
			g.VINSERTI32X4(U8(uint8(part)), v, out, out)
		case part > 0:
			g.VINSERTI128(U8(1), v, out, out)
		}
	}
	return out
}

// lower are the lower 16 bits of lanes as f16, in f32.
func (g *integerGenerator) lower(v vector) vector {
	out := g.new()
	if g.wide() {
		g.VPMOVDW(v, out.AsY())
		g.VCVTPH2PS(out.AsY(), out)
		return out
	}
	g.VPBLENDW(U8(0xaa), g.zero(), v, out)
	g.VPACKUSDW(out, out, out)
	g.VPERMQ(U8(8), out, out)
	g.VCVTPH2PS(out.AsX(), out)
	return out
}

func (g *integerGenerator) unpackEights() {
	g.unpack("unpackQ8")
	var above vector
	if g.wide() {
		above = g.copy(g.mask(0x80))
	}
	for half := range 2 {
		for i, v := range g.quads(2 + 16*half) {
			if above != nil {
				g.VPXORD(above, v, v)
			}
			g.store(v, g.bytes()*(4*half+i))
		}
	}
	g.store(g.halves(0), g.scaleAt(eights))
	g.next(34, g.blockBytes(eights))
}

// unpackNibbles unpacks blocks of 256 codes of 4 bits, and a fifth from byte high on, in parts with
// a scale and a least number of 6 bits each.
func (g *integerGenerator) unpackNibbles(name string, kind codeKind, low, high int) {
	g.unpack(name)
	g.superScales(kind)
	four := g.copy(g.mask(0x0f))
	g.times(2, 16, g.codeBytes(kind)/2, func() {
		var fifth [4]vector
		if high > 0 {
			fifth = g.quads(high)
		}
		for pair := range 4 {
			for i, v := range g.quads(low + 32*pair) {
				for nibble := range 2 {
					k := 2*pair + nibble
					code := g.under(v, 4*nibble, four)
					if high > 0 {
						g.or(g.under(fifth[i], k-4, g.mask(0x10)), code, code)
					}
					g.store(code, g.partBytes(kind)*k+g.bytes()*i)
				}
			}
		}
	})
	g.next(low+128, g.blockBytes(kind))
}

// superScales are the scales and the least numbers of the 8 parts of a block, in 6 bits each.
func (g *integerGenerator) superScales(kind codeKind) {
	head := g.quads(0)
	d, m := g.lower(head[0]), g.new()
	g.VPSRLD(U8(16), head[0], m)
	m = g.lower(m)
	g.VXORPS(g.bits(1<<31), m, m)
	g.store(d, g.scaleAt(kind))
	g.store(m, g.scaleAt(kind)+g.bytes())
	six := g.bits(63)
	for least := range 2 {
		var even vector
		for k := range 8 {
			v, from := g.new(), head[1+least]
			if k < 4 {
				g.VPSRLD(U8(uint8(8*k)), from, v)
				g.and(six, v, v)
			} else {
				// 4 bits of the third, and 2 above them
				j, upper := k-4, g.new()
				g.VPSLLD(U8(uint8(28-8*j-4*least)), head[3], v)
				g.VPSRLD(U8(28), v, v)
				g.VPSLLD(U8(uint8(24-8*j)), from, upper)
				g.VPSRLD(U8(30), upper, upper)
				g.VPSLLD(U8(4), upper, upper)
				g.or(upper, v, v)
			}
			switch {
			case least == 0:
				g.storeScale(kind, k, v)
			case k%2 == 0:
				even = v
			default:
				g.storePair(kind, k/2, even, v)
			}
		}
	}
}

// storeScale stores the scales of a part, which lanes have.
func (g *integerGenerator) storeScale(kind codeKind, part int, v vector) {
	if !g.wide() {
		v = g.words(v, v)
	}
	g.store(v, g.partBytes(kind)*part+g.codeBytes(kind))
}

// storePair stores the numbers of two parts, which lanes have.
func (g *integerGenerator) storePair(kind codeKind, pair int, even, odd vector) {
	g.store(g.words(even, odd), g.pairsAt(kind)+g.bytes()*pair)
}

// words are the lower words of the lanes of two vectors, which then are a lane.
func (g *integerGenerator) words(low, high vector) vector {
	out := g.new()
	g.VPSLLD(U8(16), high, out)
	if g.wide() {
		const either = 0xf8 // what out has, and low under the mask
		g.VPTERNLOGD(U8(either), g.bits(0xffff), low, out)
	} else {
		g.VPBLENDW(U8(0x55), low, out, out)
	}
	return out
}

// unpackSixes unpacks blocks of 256 codes of 6 bits, less 32, in parts of 16 with a scale each.
func (g *integerGenerator) unpackSixes() {
	g.unpack("unpackQ6K")
	g.store(g.halves(208), g.scaleAt(superSixes))
	for i, v := range g.quads(192) {
		var even vector
		for j := range 4 {
			s := g.new()
			g.VPSLLD(U8(uint8(24-8*j)), v, s)
			g.VPSRAD(U8(24), s, s)
			g.storeScale(superSixes, 4*i+j, s)
			if j%2 == 0 {
				even = s
				continue
			}
			g.storePair(superSixes, 2*i+j/2, even, s)
		}
	}
	four, two := g.copy(g.mask(0x0f)), g.copy(g.mask(0x30))
	g.times(2, 16, g.partBytes(superSixes), func() {
		for n := range 2 {
			high := g.quads(128 + 32*n)
			for odd := range 2 {
				for i, v := range g.quads(64*n + 32*odd) {
					for nibble := range 2 {
						k := 2*nibble + odd
						code := g.under(v, 4*nibble, four)
						g.or(g.under(high[i], 2*k-4, two), code, code)
						g.store(code, 2*g.partBytes(superSixes)*(4*n+k)+g.bytes()*i)
					}
				}
			}
		}
	})
	g.next(210, g.blockBytes(superSixes))
}

// unpackCoded unpacks blocks of 32 codes with a scale in f16.
func (g *integerGenerator) unpackCoded(l coded) {
	g.unpack("unpack" + l.name)
	g.nibbles(l.codes, l)
	d, scale := g.halves(0), g.scaleAt(fours)
	g.store(d, scale)
	switch {
	case l.least > 0:
		g.store(g.halves(l.least), scale+g.bytes())
	case l.offset > 0:
		g.VMULPS(g.c(-l.offset), d, d)
		g.store(d, scale+g.bytes())
	}
	kind := fours
	if l.levels {
		kind = eights
	}
	g.next(l.size, g.blockBytes(kind))
}

// nibbles unpacks 32 codes of which the lower halves of bytes are the first.
func (g *integerGenerator) nibbles(from int, l coded) {
	var levels, high vector
	if l.levels {
		levels = g.repeated(g.levels())
	}
	if l.high > 0 {
		high = g.dwords(l.high)
	}
	for i, v := range g.quads(from) {
		for nibble := range 2 {
			code := g.under(v, 4*nibble, g.mask(0x0f))
			switch {
			case l.levels:
				g.VPSHUFB(code, levels, code)
			case l.high > 0:
				g.addFifths(code, high, 16*nibble+4*i)
			}
			g.store(code, g.bytes()*(4*nibble+i))
		}
	}
}

// addFifths adds to the codes of lanes 16 each, where one of the four bits from one on is set.
func (g *integerGenerator) addFifths(code, high vector, from int) {
	spread := g.repeated(g.data(constant{5, 32}, "integerSpread", func(i int) (Constant, bool) { return U32(uint32(i%4) * 0x04040404), i < 8 }))
	bits := g.repeated(g.data(constant{6, 32}, "integerBits", func(i int) (Constant, bool) { return U32(0x08040201), i < 8 }))
	each := g.new() // the lowest byte of what is left of the bits, in all four of a lane
	if from > 0 {
		g.VPSRLD(U8(uint8(from)), high, each)
		high = each
	}
	g.VPSHUFB(spread, high, each)
	if g.wide() {
		set := g.K()
		g.VPTESTMB(bits, each, set)
		g.VPADDB(g.mask(0x10), code, set, code)
		return
	}
	g.VPAND(bits, each, each)
	g.VPCMPEQB(bits, each, each)
	g.VPAND(g.mask(0x10), each, each)
	g.VPOR(each, code, code)
}

// levels are those of IQ4; of AVX-512 128 is added, so that they have no sign.
func (g *integerGenerator) levels() Mem {
	key, name, above := uint64(4), "integerLevels", 0
	if g.wide() {
		key, name, above = 7, "integerLevelsAbove", 128
	}
	return g.data(constant{key, 32}, name, func(i int) (Constant, bool) {
		return U8(uint8(above + []int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}[i%16])), i < 32
	})
}

// unpackIQ4XS unpacks blocks of 8 parts of levels with a scale of 6 bits, less 32, each.
func (g *integerGenerator) unpackIQ4XS() {
	g.unpack("unpackIQ4XS")
	kind := superEights
	if g.wide() {
		kind = superLevels
	}
	head, offset := g.quads(0), g.bits(1<<32-32)
	g.store(g.lower(head[0]), g.scaleAt(kind))
	var even vector
	for k := range 8 {
		s, upper := g.new(), g.new()
		g.VPSLLD(U8(uint8(28-4*k)), head[1], s)
		g.VPSRLD(U8(28), s, s)
		g.VPSLLD(U8(uint8(14-2*k)), head[0], upper)
		g.VPSRLD(U8(30), upper, upper)
		g.VPSLLD(U8(4), upper, upper)
		g.or(upper, s, s)
		g.VPADDD(offset, s, s)
		g.storeScale(kind, k, s)
		switch {
		case kind.offset == 0:
		case k%2 == 0:
			even = s
		default:
			g.storePair(kind, k/2, even, s)
		}
	}
	g.times(8, 16, g.partBytes(kind), func() { g.nibbles(8, coded{levels: true}) })
	g.next(136, g.blockBytes(kind))
}
