package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// single is what multiplies 8 rows of a format at a time with one token, from where they are. It
// gives the bits that panels give. The rows are far apart, and each goes on where the one before it
// ends, so that memory is read in 8 long runs.
type single struct {
	name        string
	size, elems int     // of a block
	scale       int     // where 4 bytes of a block begin that have its scale in f16,
	last        bool    // in their upper half
	least       bool    // and the scale of least numbers in the other
	offset      float32 // that codes are without
	hold        func(g *singleGenerator)
	products    func(g *singleGenerator, at place) (sum, least vector)
}

// singleAhead is how many bytes of a run are fetched ahead.
const singleAhead = 768

// place is a byte of a row's block.
type place func(disp int) Mem

// singleGenerator is of one function.
type singleGenerator struct {
	*integerGenerator
	single
	l                rounded
	x                reg.Register
	four, two        vector // masks
	tables           [5]vector
	row, step, apart reg.Register
	scratch          Mem
}

// singles generates those of all formats.
func (g *integerGenerator) singles() {
	list := []single{{name: "Q8", size: 34, elems: 32, products: (*singleGenerator).q8}}
	for _, l := range codedBlocks {
		list = append(list, single{name: l.name, size: l.size, elems: 32, least: l.least > 0, offset: l.offset, hold: holdCoded, products: codes(l)})
	}
	for _, f := range append(list,
		single{name: "IQ4XS", size: 136, elems: 256, hold: holdXS, products: (*singleGenerator).iq4xs},
		single{name: "Q4K", size: 144, elems: 256, least: true, hold: holdSuper, products: nibbles(16, 0)},
		single{name: "Q5K", size: 176, elems: 256, least: true, hold: holdSuper, products: nibbles(48, 16)},
		single{name: "Q6K", size: 210, elems: 256, scale: 206, last: true, hold: holdSixes, products: (*singleGenerator).q6k},
	) {
		s := &singleGenerator{integerGenerator: g, single: f, l: roundedOf(f.elems)}
		s.write()
	}
}

func (g *singleGenerator) super() bool { return g.elems > 32 }

func (g *singleGenerator) write() {
	g.function("single"+g.name, "(w *byte, ws, apart int, x *byte, y *float32, ys, blocks, groups int)",
		"adds to y the products of groups of 8 rows with one token: rows of a group are apart bytes apart and those of y ys elements, groups ws and 1.")
	from, y, ys, upper := g.param("w"), g.param("y"), g.stride("ys"), g.GP64()
	ys3 := g.triple(ys)
	g.apart, g.row, g.step = g.param("apart"), g.GP64(), g.GP64()
	g.scratch = g.AllocLocal(3 * 128)
	if g.hold != nil {
		g.single.hold(g)
	}
	total, blocks, at := g.YMM(), g.GP64(), g.GP64()
	g.x = g.GP64()
	g.Label("group")
	g.Load(g.Param("blocks"), blocks)
	g.Load(g.Param("x"), g.x)
	g.MOVQ(from, at)
	g.LEAQ(Mem{Base: y, Index: ys, Scale: 4}, upper)
	g.VXORPS(total, total, total)
	g.VINSERTF128(U8(0), g.gathered(strided(y, ys, ys3)), total, total)
	g.VINSERTF128(U8(1), g.gathered(strided(upper, ys, ys3)), total, total)
	g.Label("block")
	g.pairs(at)
	value, by := g.value(), g.YMM()
	g.VBROADCASTSS(Mem{Base: g.x, Disp: g.l.scale}, by)
	g.VFMADD231PS(value, by, total)
	g.ADDQ(U32(uint32(g.size)), at)
	g.ADDQ(U32(uint32(g.l.bytes)), g.x)
	g.DECQ(blocks)
	g.JNZ(LabelRef("block"))
	half := g.XMM()
	g.VEXTRACTF128(U8(1), total, half)
	g.scatter(total.AsX(), strided(y, ys, ys3))
	g.scatter(half, strided(upper, ys, ys3))
	g.ADDQ(U8(4), y)
	g.ADDQ(g.memory("ws"), from)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}

// pairs are the products of a block of rows r and r+4: in a loop of blocks of 256.
func (g *singleGenerator) pairs(from reg.Register) {
	g.MOVQ(from, g.row)
	g.XORQ(g.step, g.step)
	g.Label("pair")
	places := [2]place{
		func(disp int) Mem { return Mem{Base: g.row, Disp: disp} },
		func(disp int) Mem { return Mem{Base: g.row, Index: g.apart, Scale: 4, Disp: disp} },
	}
	for line := 0; line < g.size; line += 64 {
		g.PREFETCHT0(places[0](singleAhead + line))
		g.PREFETCHT0(places[1](singleAhead + line))
	}
	var sums, leasts, scales [2]vector
	for i, at := range places {
		sums[i], leasts[i] = g.products(g, at)
		scales[i] = g.YMM()
	}
	sum, cross := g.YMM(), g.YMM()
	g.VPERM2I128(U8(0x21), sums[1], sums[0], cross)
	g.VPBLENDD(U8(0xf0), sums[1], sums[0], sum)
	g.VPADDD(cross, sum, sum)
	g.VMOVDQU(sum, g.slot(0))
	if leasts[0] != nil {
		g.VPERM2I128(U8(0x31), leasts[1], leasts[0], leasts[0])
		g.VMOVDQU(leasts[0], g.slot(1))
	}
	for i, at := range places {
		g.VPBROADCASTD(at(g.scale), scales[i])
	}
	g.VPBLENDD(U8(0xf0), scales[1], scales[0], scales[0])
	g.VMOVDQU(scales[0], g.slot(2))
	g.ADDQ(g.apart, g.row)
	g.ADDQ(U8(32), g.step)
	g.CMPQ(g.step, U32(128))
	g.JLT(LabelRef("pair"))
}

// slot is memory for what a pair of rows has of a kind.
func (g *singleGenerator) slot(kind int) Mem {
	m := g.scratch.Offset(128 * kind)
	m.Index, m.Scale = g.step, 1
	return m
}

// value is a block's sum of all rows in f32, with its least numbers, times the block's scales.
func (g *singleGenerator) value() vector {
	sum := g.tree(0)
	d := g.mixed(2)
	var least vector
	if g.least {
		least = g.YMM()
		g.VPSRLD(U8(16), d, least)
		least = g.lower(least)
	}
	if g.last {
		g.VPSRLD(U8(16), d, d)
	}
	d = g.lower(d)
	g.VCVTDQ2PS(sum, sum)
	g.VMULPS(d, sum, sum)
	switch {
	case g.least && g.super():
		numbers := g.tree(1)
		g.VCVTDQ2PS(numbers, numbers)
		g.VFNMADD231PS(numbers, least, sum)
	case g.offset > 0 || g.least:
		if g.offset > 0 {
			least = g.YMM()
			g.VMULPS(g.c(-g.offset), d, least)
		}
		numbers := g.YMM()
		g.VBROADCASTSS(Mem{Base: g.x, Disp: g.l.sum}, numbers)
		g.VFMADD231PS(numbers, least, sum)
	}
	return sum
}

// tree adds lanes of what pairs of rows have, so that a lane is a row's.
func (g *singleGenerator) tree(kind int) vector {
	var v [4]vector
	for i := range v {
		v[i] = g.YMM()
		g.VMOVDQU(g.scratch.Offset(128*kind+32*i), v[i])
	}
	for n := len(v); n > 1; n /= 2 {
		for i := range n / 2 {
			odd := g.YMM()
			g.VSHUFPS(U8(0xdd), v[2*i+1], v[2*i], odd)
			even := g.YMM()
			g.VSHUFPS(U8(0x88), v[2*i+1], v[2*i], even)
			g.VPADDD(odd, even, even)
			v[i] = even
		}
	}
	return v[0]
}

// mixed takes from each pair of rows the lanes that are theirs.
func (g *singleGenerator) mixed(kind int) vector {
	v := g.YMM()
	g.VMOVDQU(g.scratch.Offset(128*kind), v)
	for i := 1; i < 4; i++ {
		g.VPBLENDD(U8(uint8(0x11<<i)), g.scratch.Offset(128*kind+32*i), v, v)
	}
	return v
}

// held is a table of bytes in a register.
func (g *singleGenerator) held(key uint64, name string, b func(i int) int) vector {
	v := g.YMM()
	g.VMOVDQU(g.table(key, name, b), v)
	return v
}

func (g *singleGenerator) table(key uint64, name string, b func(i int) int) Mem {
	return g.data(constant{key, 32}, name, func(i int) (Constant, bool) { return U8(uint8(b(i))), i < 32 })
}

// word is in memory what takes word i of both halves of a vector to all of them.
func (g *singleGenerator) word(i int) Mem {
	return g.table(uint64(32+i), "integerWord"+string(rune('0'+i)), func(b int) int { return 2*i + b%2 })
}

func holdMasks(g *singleGenerator) {
	g.four, g.two = g.YMM(), g.YMM()
	g.VMOVDQU(g.mask(0x0f), g.four)
	g.VMOVDQU(g.mask(0x30), g.two)
}

// part adds to a sum the products of 32 codes with numbers, times word i of the scales.
func (g *singleGenerator) part(sum *vector, code, scales vector, numbers Op, i int) {
	g.VPMADDUBSW(numbers, code, code)
	by := g.YMM()
	g.VPSHUFB(g.word(i), scales, by)
	g.VPMADDWD(by, code, code)
	if *sum == nil {
		*sum = code
	} else {
		g.VPADDD(code, *sum, *sum)
	}
}

// holdSuper holds what takes a head of scales and least numbers apart: in the lower half to the
// words of scales, in the upper half to those of least numbers.
func holdSuper(g *singleGenerator) {
	holdMasks(g)
	const none = 0x80
	g.tables[0] = g.held(48, "integerHeadLow", func(i int) int {
		k := i % 16 / 2
		switch {
		case i%2 == 1:
			return none
		case k < 4:
			return 4 + i/16*4 + k
		}
		return 8 + k
	})
	g.tables[1] = g.held(49, "integerHeadHigh", func(i int) int {
		if k := i % 16 / 2; i%2 == 0 && k >= 4 {
			return i/16*4 + k
		}
		return none
	})
	g.tables[2] = g.held(50, "integerHeadShifts", func(i int) int {
		if i >= 24 && i%4 == 0 {
			return 4
		}
		return 0
	})
	g.tables[3] = g.held(51, "integerHeadMask", func(i int) int {
		switch {
		case i%2 == 1:
			return 0
		case i%16 < 8:
			return 63
		}
		return 15
	})
}

// nibbles is of blocks of 256 codes of 4 bits, and a fifth from byte high on, in parts with a scale
// and a least number of 6 bits each.
func nibbles(low, high int) func(g *singleGenerator, at place) (sum, least vector) {
	return func(g *singleGenerator, at place) (sum, least vector) {
		head, words, upper := g.YMM(), g.YMM(), g.YMM()
		g.VBROADCASTI128(at(0), head)
		g.VPSHUFB(g.tables[0], head, words)
		g.VPSHUFB(g.tables[1], head, upper)
		g.VPSRLVD(g.tables[2], words, words)
		g.VPAND(g.tables[3], words, words)
		g.VPSRLD(U8(2), upper, upper)
		g.VPAND(g.two, upper, upper)
		g.VPOR(upper, words, words)
		scales := g.YMM()
		least = g.YMM()
		g.VPERMQ(U8(0x44), words, scales)
		g.VBROADCASTI128(Mem{Base: g.x, Disp: g.l.sums}, least)
		g.VPMADDWD(least, words, least)
		var fifth vector
		if high > 0 {
			fifth = g.YMM()
			g.VMOVDQU(at(high), fifth)
		}
		for pair := range 4 {
			v := g.YMM()
			g.VMOVDQU(at(low+32*pair), v)
			for nibble := range 2 {
				k := 2*pair + nibble
				code := g.under(v, 4*nibble, g.four)
				if high > 0 {
					g.VPOR(g.under(fifth, k-4, g.mask(0x10)), code, code)
				}
				g.part(&sum, code, scales, Mem{Base: g.x, Disp: 32 * k}, k)
			}
		}
		return sum, least
	}
}

func holdSixes(g *singleGenerator) {
	holdMasks(g)
	// the upper byte of words: in the lower half of even parts, in the upper half of odd ones
	g.tables[0] = g.held(52, "integerSixes", func(i int) int {
		if i%2 == 0 {
			return 0x80
		}
		return i%16 - 1 + i/16
	})
}

// q6k is of blocks of 256 codes of 6 bits, less 32, in parts of 16 with a scale each.
func (g *singleGenerator) q6k(at place) (sum, _ vector) {
	scales, least := g.YMM(), g.YMM()
	g.VBROADCASTI128(at(192), scales)
	g.VPSHUFB(g.tables[0], scales, scales)
	g.VPSRAW(U8(8), scales, scales)
	g.VPMOVSXBW(at(192), least)
	g.VPMADDWD(Mem{Base: g.x, Disp: g.l.halves}, least, least)
	g.VPSLLD(U8(5), least, least)
	for n := range 2 {
		high := g.YMM()
		g.VMOVDQU(at(128+32*n), high)
		for odd := range 2 {
			v := g.YMM()
			g.VMOVDQU(at(64*n+32*odd), v)
			for nibble := range 2 {
				k := 2*nibble + odd
				code := g.under(v, 4*nibble, g.four)
				g.VPOR(g.under(high, 2*k-4, g.two), code, code)
				g.part(&sum, code, scales, Mem{Base: g.x, Disp: 32 * (4*n + k)}, 4*n+k)
			}
		}
	}
	g.VPSUBD(least, sum, sum)
	return sum, nil
}

func holdXS(g *singleGenerator) {
	holdMasks(g)
	g.tables[0] = g.held(53, "integerFourShifts", func(i int) int {
		if i%4 == 0 {
			return i
		}
		return 0
	})
	g.tables[1] = g.held(54, "integerTwoShifts", func(i int) int {
		if i%4 == 0 {
			return i / 2
		}
		return 0
	})
	holdLevels(g)
}

// holdLevels holds the levels of IQ4, and what takes nibbles of 16 bytes apart.
func holdLevels(g *singleGenerator) {
	g.tables[2] = g.YMM()
	g.VMOVDQU(g.levels(), g.tables[2])
	holdHalves(g)
}

func holdHalves(g *singleGenerator) {
	g.tables[3] = g.held(55, "integerHalves", func(i int) int {
		if i >= 16 && i%4 == 0 {
			return 4
		}
		return 0
	})
}

// halves are 32 codes of which the lower halves of bytes are the first.
func (g *singleGenerator) halvesOf(at Mem) vector {
	v := g.YMM()
	g.VBROADCASTI128(at, v)
	g.VPSRLVD(g.tables[3], v, v)
	g.VPAND(g.four, v, v)
	return v
}

// signedProducts are words of sums of two products of 32 signed codes with numbers.
func (g *singleGenerator) signedProducts(code vector, disp int) vector {
	size, number := g.YMM(), g.YMM()
	g.VPABSB(code, size)
	g.VMOVDQU(Mem{Base: g.x, Disp: disp}, number)
	g.VPSIGNB(code, number, number)
	g.VPMADDUBSW(number, size, size)
	return size
}

// iq4xs is of blocks of 8 parts of levels with a scale of 6 bits, less 32, each.
func (g *singleGenerator) iq4xs(at place) (sum, _ vector) {
	low, high := g.YMM(), g.YMM()
	g.VPBROADCASTD(at(4), low)
	g.VPBROADCASTW(at(2), high)
	g.VPSRLVD(g.tables[0], low, low)
	g.VPSRLVD(g.tables[1], high, high)
	g.VPSLLD(U8(4), high, high)
	g.VPAND(g.bits(0x0f), low, low)
	g.VPAND(g.bits(0x30), high, high)
	g.VPOR(low, high, low)
	g.VPADDD(g.bits(1<<32-32), low, low)
	g.VPACKSSDW(low, low, low)
	g.VPERMQ(U8(0x88), low, low)
	for k := range 8 {
		code := g.halvesOf(at(8 + 16*k))
		g.VPSHUFB(code, g.tables[2], code)
		words, by := g.signedProducts(code, 32*k), g.YMM()
		g.VPSHUFB(g.word(k), low, by)
		g.VPMADDWD(by, words, words)
		if k == 0 {
			sum = words
		} else {
			g.VPADDD(words, sum, sum)
		}
	}
	return sum, nil
}

// q8 is of blocks of 32 codes of 8 bits.
func (g *singleGenerator) q8(at place) (sum, _ vector) {
	code := g.YMM()
	g.VMOVDQU(at(2), code)
	sum = g.signedProducts(code, 0)
	g.VPMADDWD(g.ones(), sum, sum)
	return sum, nil
}

func holdCoded(g *singleGenerator) {
	holdMasks(g)
	holdLevels(g)
}

// codes is of blocks of 32 codes.
func codes(l coded) func(g *singleGenerator, at place) (sum, least vector) {
	return func(g *singleGenerator, at place) (sum, _ vector) {
		code := g.halvesOf(at(l.codes))
		if l.levels {
			g.VPSHUFB(code, g.tables[2], code)
			sum = g.signedProducts(code, 0)
		} else {
			if l.high > 0 {
				g.fifths(code, at(l.high))
			}
			sum = code
			g.VPMADDUBSW(Mem{Base: g.x}, code, sum)
		}
		g.VPMADDWD(g.ones(), sum, sum)
		return sum, nil
	}
}

// fifths adds to 32 codes their fifth bits.
func (g *singleGenerator) fifths(code vector, at Mem) {
	bits := g.table(57, "integerEighths", func(i int) int { return 1 << (i % 8) })
	each := g.YMM()
	g.VPBROADCASTD(at, each)
	g.VPSHUFB(g.table(56, "integerBytesOf", func(i int) int { return i / 8 }), each, each)
	g.VPAND(bits, each, each)
	g.VPCMPEQB(bits, each, each)
	g.VPAND(g.mask(0x10), each, each)
	g.VPOR(each, code, code)
}
