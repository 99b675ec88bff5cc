package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// integers generates integer products of weights in blocks with activations in 8 bits: what rounds
// activations, what unpacks 8 rows of weights into a panel, and what multiplies two panels with
// some tokens.
//
// A panel has for each 32 elements of k the codes of 8 rows, 4 of each row in a vector, and for
// each part (32 elements, or 16) a vector of scales and one of least numbers. Codes of at most 6
// bits are unsigned; a sum of products is scale·Σ code·number + least·Σ number, and the offset of a
// format is in its least numbers. Codes of 8 bits are signed and have none.
func integers(c *build.Context) {
	g := &integerGenerator{vec: newVec(c, avx2)}
	g.masks = map[uint8]Mem{}
	g.round()
	for _, k := range []codeKind{fours, fives, sixes, eights} {
		for tokens := 1; tokens <= k.tokens; tokens++ {
			g.dot(k, tokens)
		}
	}
	g.unpackEights()
	g.unpackNibbles("unpackQ4K", 16, 0)
	g.unpackNibbles("unpackQ5K", 48, 16)
	g.unpackSixes()
	g.unpackCoded("unpackQ4x0", coded{codes: 2, size: 18, offset: 8})
	g.unpackCoded("unpackQ4x1", coded{codes: 4, size: 20, least: 2})
	g.unpackCoded("unpackQ5x0", coded{codes: 6, size: 22, high: 2, offset: 16})
	g.unpackCoded("unpackQ5x1", coded{codes: 8, size: 24, high: 4, least: 2})
	g.unpackCoded("unpackIQ4NL", coded{codes: 2, size: 18, levels: true})
	g.unpackIQ4XS()
}

// codeKind is how codes are multiplied.
type codeKind struct {
	name   string
	group  int // vectors of codes whose products fit 16 bits together
	parts  int // of 32 elements, with scales of their own
	signed bool
	tokens int // that registers suffice for
}

var (
	fours  = codeKind{"Fours", 8, 1, false, 3}
	fives  = codeKind{"Fives", 4, 1, false, 2}
	sixes  = codeKind{"Sixes", 2, 2, false, 2}
	eights = codeKind{"Eights", 1, 1, true, 2}
)

// Offsets in what is made of 32 activations, and the size of it: 32 numbers, their scale, their
// sum, and those of their halves, in f32.
const (
	roundedScale = 32
	roundedSum   = 36
	roundedHalf  = 40
	roundedBytes = 48
)

// panelPart is the size of the codes of 32 elements in a panel, before their scales.
const panelPart = 256

// bytes is the size of 32 elements in a panel.
func (k *codeKind) bytes() int { return panelPart + 64*k.parts }

// integerGenerator is of one function at a time.
type integerGenerator struct {
	*vec
	masks map[uint8]Mem

	to, from, ws, ws3, upper, blocks reg.Register // upper is the fifth row of weights
	ahead, upperAhead                reg.Register // what is fetched for the next panel
}

// mask is a byte in each of a vector, in memory.
func (g *integerGenerator) mask(b uint8) Mem {
	if _, ok := g.masks[b]; !ok {
		g.masks[b] = g.static(fmt.Sprintf("integerBytes%02x", b), U8(b))
	}
	return g.masks[b]
}

// round rounds blocks of 32 activations to 8 bits.
func (g *integerGenerator) round() {
	g.function("roundBlocks", "(to *byte, x *float32, blocks int)", "rounds blocks of 32 activations to 8 bits, as roundBlock does.")
	to, x, n := g.param("to"), g.param("x"), g.param("blocks")
	magnitude, most, least, one := g.YMM(), g.YMM(), g.YMM(), g.YMM()
	g.VBROADCASTSS(g.bits(1<<31-1).(Mem), magnitude)
	g.VBROADCASTSS(g.c(127).(Mem), most)
	g.VBROADCASTSS(g.c(0x1p-100).(Mem), least)
	g.VBROADCASTSS(g.bits(1<<16|1).(Mem), one)
	order := g.data(constant{0, 32}, "integerOrder", func(i int) (Constant, bool) {
		return U32([]uint32{0, 4, 1, 5, 2, 6, 3, 7}[i%8]), i < 8
	})
	g.Label("block")
	var v [4]vector
	largest := g.zero()
	for i := range v {
		a := g.YMM()
		g.VPAND(Mem{Base: x, Disp: 32 * i}, magnitude, a)
		g.VPMAXSD(a, largest, largest)
	}
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
	g.VMOVSS(scale.AsX(), Mem{Base: to, Disp: roundedScale})
	for i := range v {
		v[i] = g.YMM()
		g.VMULPS(Mem{Base: x, Disp: 32 * i}, inverse, v[i])
		g.VCVTPS2DQ(v[i], v[i])
	}
	lo, hi, numbers, at := g.YMM(), g.YMM(), g.YMM(), g.YMM()
	g.VMOVDQU(order, at)
	g.VPACKSSDW(v[1], v[0], lo)
	g.VPACKSSDW(v[3], v[2], hi)
	g.VPACKSSWB(hi, lo, numbers)
	g.VPERMD(numbers, at, numbers)
	g.VMOVDQU(numbers, Mem{Base: to})
	var sums [2]vector
	for i, s := range []vector{lo, hi} {
		sums[i] = g.YMM()
		g.VPMADDWD(one, s, sums[i])
	}
	// lanes of both halves, and then of each half
	sum := g.YMM()
	g.VPHADDD(sums[1], sums[0], sum)
	g.VPHADDD(sum, sum, sum)
	upper, total := g.XMM(), g.XMM()
	g.VEXTRACTI128(U8(1), sum, upper)
	g.VPADDD(upper, sum.AsX(), upper)
	g.VCVTDQ2PS(upper, upper)
	g.VMOVQ(upper, Mem{Base: to, Disp: roundedHalf})
	g.VMOVSHDUP(upper, total)
	g.VADDSS(total, upper, total)
	g.VMOVSS(total, Mem{Base: to, Disp: roundedSum})
	g.ADDQ(U8(roundedBytes), to)
	g.ADDQ(U32(128), x)
	g.DECQ(n)
	g.JNZ(LabelRef("block"))
	g.end()
}

// dot multiplies two panels with some tokens.
func (g *integerGenerator) dot(k codeKind, tokens int) {
	g.function(fmt.Sprintf("dot%sx%d", k.name, tokens), "(panel *byte, apart int, x *byte, xs int, sums *float32, blocks int)",
		fmt.Sprintf("adds to the sums of 16 rows, which are two panels apart bytes apart, the products of %d tokens,", tokens),
		"xs bytes apart, over blocks of 32 elements.")
	panel, apart, x, sums, blocks := g.param("panel"), g.param("apart"), g.param("x"), g.param("sums"), g.param("blocks")
	var xs reg.Register
	if tokens > 1 {
		xs = g.param("xs")
	}
	token := func(t, disp int) Mem {
		if t == 0 {
			return Mem{Base: x, Disp: disp}
		}
		return Mem{Base: x, Index: xs, Scale: uint8(t), Disp: disp}
	}
	row := func(r, disp int) Mem {
		if r == 0 {
			return Mem{Base: panel, Disp: disp}
		}
		return Mem{Base: panel, Index: apart, Scale: 1, Disp: disp}
	}
	total := make([][2]vector, tokens)
	for t := range total {
		for r := range 2 {
			total[t][r] = g.YMM()
			g.VMOVUPS(Mem{Base: sums, Disp: 64*t + 32*r}, total[t][r])
		}
	}
	ones := g.data(constant{1, 16}, "integerOnes", func(i int) (Constant, bool) { return U16(1), i < 16 })
	g.Label("block")
	steps := 8 / k.parts
	for part := range k.parts {
		sum := make([][2]vector, tokens)
		for group := 0; group < steps; group += k.group {
			short := make([][2]vector, tokens)
			for step := group; step < group+k.group; step++ {
				at := 32 * (part*steps + step)
				var w, size [2]vector
				for r := range w {
					w[r] = g.YMM()
					g.VMOVDQU(row(r, at), w[r])
					if size[r] = w[r]; k.signed {
						size[r] = g.YMM()
						g.VPABSB(w[r], size[r])
					}
				}
				for t := range tokens {
					number := g.YMM()
					g.VPBROADCASTD(token(t, at/8), number)
					for r := range w {
						n, product := number, g.YMM()
						if k.signed {
							n = product
							g.VPSIGNB(w[r], number, n)
						}
						g.VPMADDUBSW(n, size[r], product)
						if step == group {
							short[t][r] = product
						} else {
							g.VPADDW(product, short[t][r], short[t][r])
						}
					}
				}
			}
			for t := range tokens {
				for r, s := range short[t] {
					g.VPMADDWD(ones, s, s)
					if group == 0 {
						sum[t][r] = s
					} else {
						g.VPADDD(s, sum[t][r], sum[t][r])
					}
				}
			}
		}
		for t := range tokens {
			by := g.YMM()
			for r, s := range sum[t] {
				g.VCVTDQ2PS(s, s)
				g.VMULPS(row(r, panelPart+32*part), s, s)
			}
			if !k.signed {
				numbers := roundedSum
				if k.parts > 1 {
					numbers = roundedHalf + 4*part
				}
				g.VBROADCASTSS(token(t, numbers), by)
				for r, s := range sum[t] {
					g.VFMADD231PS(row(r, panelPart+32*(k.parts+part)), by, s)
				}
			}
			g.VBROADCASTSS(token(t, roundedScale), by)
			for r, s := range sum[t] {
				g.VFMADD231PS(s, by, total[t][r])
			}
		}
	}
	g.ADDQ(U32(uint32(k.bytes())), panel)
	g.ADDQ(U8(roundedBytes), x)
	g.DECQ(blocks)
	g.JNZ(LabelRef("block"))
	for t := range total {
		for r, v := range total[t] {
			g.VMOVUPS(v, Mem{Base: sums, Disp: 64*t + 32*r})
		}
	}
	g.end()
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
	g.store(g.halves(0), panelPart)
	g.next(34, eights.bytes())
}

// unpackNibbles unpacks blocks of 256 codes of 4 bits, and a fifth from byte high on, in parts with
// a scale and a least number of 6 bits each.
func (g *integerGenerator) unpackNibbles(name string, low, high int) {
	g.unpack(name)
	part := fours.bytes()
	g.superScales(part)
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
					g.store(code, part*k+128*half+32*i)
				}
			}
		}
	}
	g.next(low+128, 8*part)
}

// superScales are the scales and the least numbers of the 8 parts of a block, in 6 bits each.
func (g *integerGenerator) superScales(part int) {
	head := g.quads(0)
	d, m := g.lower(head[0]), g.YMM()
	g.VPSRLD(U8(16), head[0], m)
	m = g.lower(m)
	g.VXORPS(g.bits(1<<31), m, m)
	six := g.bits(63)
	for k := range 8 {
		for least := range 2 {
			v := g.YMM()
			from, by := head[1+least], m
			if least == 0 {
				by = d
			}
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
			g.VCVTDQ2PS(v, v)
			g.VMULPS(by, v, v)
			g.store(v, part*k+panelPart+32*least)
		}
	}
}

// unpackSixes unpacks blocks of 256 codes of 6 bits, less 32, in parts of 16 with a scale each.
func (g *integerGenerator) unpackSixes() {
	g.unpack("unpackQ6K")
	part := sixes.bytes()
	d, offset := g.halves(208), g.YMM()
	g.VBROADCASTSS(g.c(-32).(Mem), offset)
	for i, v := range g.quads(192) {
		for j := range 4 {
			s := g.YMM()
			g.VPSLLD(U8(uint8(24-8*j)), v, s)
			g.VPSRAD(U8(24), s, s)
			g.VCVTDQ2PS(s, s)
			g.VMULPS(d, s, s)
			at := part*(2*i+j/2) + panelPart + 32*(j%2)
			g.store(s, at)
			g.VMULPS(offset, s, s)
			g.store(s, at+64)
		}
	}
	four, two := g.YMM(), g.YMM()
	g.VMOVDQU(g.mask(0x0f), four)
	g.VMOVDQU(g.mask(0x30), two)
	for n := range 2 {
		for half := range 2 {
			high := g.quads(128 + 32*n + 16*half)
			for odd := range 2 {
				for i, v := range g.quads(64*n + 32*odd + 16*half) {
					for nibble := range 2 {
						k := 2*nibble + odd
						code := g.under(v, 4*nibble, four)
						g.VPOR(g.under(high[i], 2*k-4, two), code, code)
						g.store(code, part*(4*n+k)+128*half+32*i)
					}
				}
			}
		}
	}
	g.next(210, 8*part)
}

// coded says at which bytes of a block of 32 elements things are, 0: nowhere.
type coded struct {
	codes, size, high, least int
	offset                   float32 // that codes are without
	levels                   bool    // codes stand for those of IQ4_NL
}

// unpackCoded unpacks blocks of 32 codes with a scale in f16.
func (g *integerGenerator) unpackCoded(name string, l coded) {
	g.unpack(name)
	g.nibbles(l.codes, 0, l)
	d := g.halves(0)
	g.store(d, panelPart)
	switch {
	case l.least > 0:
		g.store(g.halves(l.least), panelPart+32)
	case l.offset > 0:
		offset := g.YMM()
		g.VBROADCASTSS(g.c(-l.offset).(Mem), offset)
		g.VMULPS(offset, d, d)
		g.store(d, panelPart+32)
	}
	g.next(l.size, fours.bytes())
}

// nibbles unpacks 32 codes of which the lower halves of bytes are the first.
func (g *integerGenerator) nibbles(from, to int, l coded) {
	levels := g.YMM()
	if l.levels {
		g.VMOVDQU(g.data(constant{4, 32}, "integerLevels", func(i int) (Constant, bool) {
			return I8([]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}[i%16]), i < 32
		}), levels)
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

// unpackIQ4XS unpacks blocks of 8 parts of levels with a scale of 6 bits, less 32, each.
func (g *integerGenerator) unpackIQ4XS() {
	g.unpack("unpackIQ4XS")
	part := fours.bytes()
	head := g.quads(0)
	d, offset := g.lower(head[0]), g.bits(1<<32-32)
	for k := range 8 {
		s, upper := g.YMM(), g.YMM()
		g.VPSLLD(U8(uint8(28-4*k)), head[1], s)
		g.VPSRLD(U8(28), s, s)
		g.VPSLLD(U8(uint8(14-2*k)), head[0], upper)
		g.VPSRLD(U8(30), upper, upper)
		g.VPSLLD(U8(4), upper, upper)
		g.VPOR(upper, s, s)
		g.VPADDD(offset, s, s)
		g.VCVTDQ2PS(s, s)
		g.VMULPS(d, s, s)
		g.store(s, part*k+panelPart)
	}
	for k := range 8 {
		g.nibbles(8+16*k, part*k, coded{levels: true})
	}
	g.next(136, 8*part)
}
