package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// integers generates integer products of weights in blocks with activations in 8 bits: what rounds
// activations; for one token, what multiplies 8 rows; for several, what unpacks 8 rows of weights
// into a panel, and what multiplies two panels.
//
// The sum of a block's products is a whole number, in any order, and so is that of its least
// numbers with the sums of activations: parts of a block have whole scales. Both go to f32 and are
// multiplied with the block's scales; products of blocks are added in order.
func integers(c *build.Context) {
	g := &integerGenerator{vec: newVec(c, avx2)}
	g.masks = map[uint8]Mem{}
	g.round(32)
	g.round(256)
	for _, k := range codeKinds {
		for tokens := 1; tokens <= k.tokens; tokens++ {
			g.dot(k, tokens)
		}
	}
	g.unpacks()
	g.singles()
}

// codeKind is how codes in panels are multiplied.
//
// A panel has for each 32 elements the codes of 8 rows, 4 of each row in a vector, and in blocks of
// 256 the scale of each part, in both words of a lane. At the end of a block of 256 are words of
// numbers for each two parts: least numbers, or the scales again; then in f32 the scales of blocks
// and those of least numbers. Codes of at most 6 bits are unsigned; codes of 8 bits are signed and
// have no least numbers.
type codeKind struct {
	name   string
	elems  int // of a block
	part   int // elements with a scale of their own
	group  int // vectors of codes whose products fit 16 bits together
	signed bool
	offset int // shift of the number that codes are above the elements' own, by whole scales
	tokens int // that registers suffice for
}

var (
	fours       = codeKind{name: "Fours", elems: 32, part: 32, group: 8, tokens: 3}
	fives       = codeKind{name: "Fives", elems: 32, part: 32, group: 4, tokens: 2}
	eights      = codeKind{name: "Eights", elems: 32, part: 32, group: 1, signed: true, tokens: 2}
	superFours  = codeKind{name: "SuperFours", elems: 256, part: 32, group: 8, tokens: 3}
	superFives  = codeKind{name: "SuperFives", elems: 256, part: 32, group: 4, tokens: 3}
	superSixes  = codeKind{name: "SuperSixes", elems: 256, part: 16, group: 2, offset: 5, tokens: 3}
	superEights = codeKind{name: "SuperEights", elems: 256, part: 32, group: 1, signed: true, tokens: 2}

	codeKinds = []codeKind{fours, fives, eights, superFours, superFives, superSixes, superEights}
)

func (k *codeKind) super() bool { return k.elems > 32 }

// panelPart is the size of the codes of 32 elements in a panel.
const panelPart = 256

// stride is the size of 32 elements in a panel, with the scales of their parts.
func (k *codeKind) stride() int {
	if !k.super() {
		return panelPart
	}
	return panelPart + 32*32/k.part
}

// scaleOf is where in a panel's block the scales of a part are, of blocks of 256.
func (k *codeKind) scaleOf(part int) int {
	each := 32 / k.part
	return part/each*k.stride() + panelPart + 32*(part%each)
}

// pairs is where in a panel's block the words for each two parts begin, and what is before them.
func (k *codeKind) pairs() int { return k.elems / 32 * k.stride() }

// scale is where in a panel's block its scales are.
func (k *codeKind) scale() int {
	if !k.super() || k.signed {
		return k.pairs()
	}
	return k.pairs() + k.elems/k.part*16
}

func (k *codeKind) bytes() int {
	if k.signed || k.offset > 0 {
		return k.scale() + 32
	}
	return k.scale() + 64
}

// rounded are offsets in what is made of the activations of a block, after the numbers: the scale
// in f32, and sums of numbers. Those of 32 have theirs in f32; of 256 there are those of each 16
// and of each 32, in words.
type rounded struct {
	scale, sum, halves, sums, bytes int
}

func roundedOf(elems int) rounded {
	return rounded{scale: elems, sum: elems + 4, halves: elems + 4, sums: elems + 36, bytes: elems + elems/4}
}

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

// ones are words.
func (g *integerGenerator) ones() Mem {
	return g.data(constant{1, 16}, "integerOnes", func(i int) (Constant, bool) { return U16(1), i < 16 })
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

// dotGenerator is of a function that multiplies two panels with some tokens.
type dotGenerator struct {
	*integerGenerator
	k                           codeKind
	l                           rounded
	tokens                      int
	past, pastPanel             int // bytes of a block that are behind x and panel at its end
	panel, apart, x, xs, toward reg.Register
}

// token is in a token's numbers.
func (g *dotGenerator) token(t, disp int) Mem {
	if t == 0 {
		return Mem{Base: g.x, Disp: disp}
	}
	return Mem{Base: g.x, Index: g.xs, Scale: uint8(t), Disp: disp}
}

// in is in a panel.
func (g *dotGenerator) in(r, disp int) Mem {
	if r == 0 {
		return Mem{Base: g.panel, Disp: disp}
	}
	return Mem{Base: g.panel, Index: g.apart, Scale: 1, Disp: disp}
}

// dot multiplies two panels with some tokens.
func (g *integerGenerator) dot(k codeKind, tokens int) {
	g.function(fmt.Sprintf("dot%sx%d", k.name, tokens), "(panel *byte, apart int, x *byte, xs int, sums *float32, blocks int)",
		fmt.Sprintf("adds to the sums of 16 rows, which are two panels apart bytes apart, the products of %d tokens,", tokens),
		fmt.Sprintf("xs bytes apart, over blocks of %d elements.", k.elems))
	d := &dotGenerator{integerGenerator: g, k: k, l: roundedOf(k.elems), tokens: tokens}
	if k.super() {
		d.past, d.pastPanel = k.elems, k.pairs()
	}
	d.panel, d.apart, d.x, d.toward = g.param("panel"), g.param("apart"), g.param("x"), g.param("sums")
	blocks := g.param("blocks")
	if tokens > 1 {
		d.xs = g.param("xs")
	}
	var totals [][2]vector // of blocks of 256 they are in memory
	if !k.super() {
		totals = make([][2]vector, tokens)
		d.each(func(t, r int) {
			totals[t][r] = g.YMM()
			g.VMOVUPS(Mem{Base: d.toward, Disp: 64*t + 32*r}, totals[t][r])
		})
	}
	g.Label("block")
	sums := make([][2]vector, tokens)
	if k.super() {
		d.each(func(t, r int) { sums[t][r] = g.zero() })
		left := g.GP64()
		g.MOVQ(U32(uint32(k.elems/32)), left)
		g.Label("part")
		d.sums(sums)
		g.ADDQ(U32(uint32(k.stride())), d.panel)
		g.ADDQ(U8(32), d.x)
		g.DECQ(left)
		g.JNZ(LabelRef("part"))
	} else {
		d.sums(sums)
	}
	d.each(func(t, r int) {
		value, by := d.value(sums[t][r], t, r), g.YMM()
		g.VBROADCASTSS(d.token(t, d.l.scale-d.past), by)
		if !k.super() {
			g.VFMADD231PS(value, by, totals[t][r])
			return
		}
		total := Mem{Base: d.toward, Disp: 64*t + 32*r}
		g.VFMADD213PS(total, by, value)
		g.VMOVUPS(value, total)
	})
	g.ADDQ(U32(uint32(k.bytes()-d.pastPanel)), d.panel)
	g.ADDQ(U32(uint32(d.l.bytes-d.past)), d.x)
	g.DECQ(blocks)
	g.JNZ(LabelRef("block"))
	if !k.super() {
		d.each(func(t, r int) { g.VMOVUPS(totals[t][r], Mem{Base: d.toward, Disp: 64*t + 32*r}) })
	}
	g.end()
}

func (g *dotGenerator) each(f func(t, r int)) {
	for t := range g.tokens {
		for r := range 2 {
			f(t, r)
		}
	}
}

// sums adds the products of 32 elements to sums, by token and panel; it makes those that are nil.
func (g *dotGenerator) sums(sums [][2]vector) {
	for at := 0; at < 8; at += g.k.group {
		words := make([][2]vector, g.tokens)
		for step := range g.k.group {
			g.products(words, at+step, step == 0)
		}
		g.each(func(t, r int) {
			w := words[t][r]
			if g.k.super() {
				g.VPMADDWD(g.in(r, g.k.scaleOf(4*at/g.k.part)), w, w)
			} else {
				g.VPMADDWD(g.ones(), w, w)
			}
			if sums[t][r] == nil {
				sums[t][r] = w
			} else {
				g.VPADDD(w, sums[t][r], sums[t][r])
			}
		})
	}
}

// products adds those of a vector of codes to words.
func (g *dotGenerator) products(words [][2]vector, at int, first bool) {
	var w, size [2]vector
	for r := range w {
		w[r] = g.YMM()
		g.VMOVDQU(g.in(r, 32*at), w[r])
		if size[r] = w[r]; g.k.signed {
			size[r] = g.YMM()
			g.VPABSB(w[r], size[r])
		}
	}
	for t := range g.tokens {
		number := g.YMM()
		g.VPBROADCASTD(g.token(t, 4*at), number)
		for r := range w {
			n, product := number, g.YMM()
			if g.k.signed {
				n = product
				g.VPSIGNB(w[r], number, n)
			}
			g.VPMADDUBSW(n, size[r], product)
			if first {
				words[t][r] = product
			} else {
				g.VPADDW(product, words[t][r], words[t][r])
			}
		}
	}
}

// value is a block's sum in f32, with its least numbers, times the block's scales.
func (g *dotGenerator) value(sum vector, t, r int) vector {
	least := g.least(t, r)
	if g.k.offset > 0 {
		g.VPSLLD(U8(uint8(g.k.offset)), least, least)
		g.VPSUBD(least, sum, sum)
	}
	g.VCVTDQ2PS(sum, sum)
	g.VMULPS(g.in(r, g.k.scale()-g.pastPanel), sum, sum)
	if !g.k.signed && g.k.offset == 0 {
		g.VFMADD231PS(g.in(r, g.k.scale()+32-g.pastPanel), least, sum)
	}
	return sum
}

// least is the sum of what words of pairs of parts make of sums of activations.
func (g *dotGenerator) least(t, r int) vector {
	if g.k.signed {
		return nil
	}
	sum := g.YMM()
	if !g.k.super() {
		g.VBROADCASTSS(g.token(t, g.l.sum-g.past), sum)
		return sum
	}
	of := g.l.sums
	if g.k.part == 16 {
		of = g.l.halves
	}
	for i := range g.k.elems / g.k.part / 2 {
		product := sum
		if i > 0 {
			product = g.YMM()
		}
		g.VPBROADCASTD(g.token(t, of+4*i-g.past), product)
		g.VPMADDWD(g.in(r, g.k.pairs()+32*i-g.pastPanel), product, product)
		if i > 0 {
			g.VPADDD(product, sum, sum)
		}
	}
	if g.k.offset == 0 {
		g.VCVTDQ2PS(sum, sum)
	}
	return sum
}
