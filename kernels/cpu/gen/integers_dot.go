package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dotGenerator is of a function that multiplies two panels with some tokens.
type dotGenerator struct {
	*integerGenerator
	k                           codeKind
	l                           rounded
	tokens                      int
	past, pastPanel             int // bytes of a block that are behind x and panel at its end
	panel, apart, x, xs, toward reg.Register
	upper                       reg.Register // the fourth token
	magic                       vector       // see unsigned
}

// token is in a token's numbers.
func (g *dotGenerator) token(t, disp int) Mem {
	base := g.x
	if t >= 3 {
		base, t = g.upper, t-3
	}
	if t == 0 {
		return Mem{Base: base, Disp: disp}
	}
	return Mem{Base: base, Index: g.xs, Scale: uint8(t), Disp: disp}
}

// advance goes on in the panels and in x.
func (g *dotGenerator) advance(panel, x int) {
	g.ADDQ(U32(uint32(panel)), g.panel)
	g.ADDQ(U32(uint32(x)), g.x)
	if g.upper != nil {
		g.ADDQ(U32(uint32(x)), g.upper)
	}
}

// sum is where a token's sums of a panel are.
func (g *dotGenerator) sum(t, r int) Mem {
	return Mem{Base: g.toward, Disp: g.bytes() * (2*t + r)}
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
		fmt.Sprintf("adds to the sums of %d rows, which are two panels apart bytes apart, the products of %d tokens,", 2*g.set.lanes, tokens),
		fmt.Sprintf("xs bytes apart, over blocks of %d elements.", k.elems))
	d := &dotGenerator{integerGenerator: g, k: k, l: roundedOf(k.elems), tokens: tokens, past: k.elems, pastPanel: g.pairsAt(k)}
	d.panel, d.apart, d.x, d.toward = g.param("panel"), g.param("apart"), g.param("x"), g.param("sums")
	blocks := g.param("blocks")
	if tokens > 1 {
		d.xs = g.param("xs")
	}
	if tokens > 3 {
		d.upper = g.GP64()
		g.LEAQ(Mem{Base: d.x, Index: d.xs, Scale: 2}, d.upper)
		g.ADDQ(d.xs, d.upper)
	}
	var totals [][2]vector // of blocks of 256 they are in memory
	if !k.super() {
		totals = make([][2]vector, tokens)
		d.each(func(t, r int) {
			totals[t][r] = g.copy(d.sum(t, r))
		})
	}
	if g.wide() && !k.super() {
		d.magic = g.copy(g.bits(biasBits))
	}
	g.Label("block")
	sums := make([][2]vector, tokens)
	if k.super() {
		d.each(func(t, r int) { sums[t][r] = g.zero() })
		left := g.GP64()
		g.MOVQ(U32(uint32(k.elems/k.part)), left)
		g.Label("part")
		d.sums(sums)
		g.DECQ(left)
		g.JNZ(LabelRef("part"))
	} else {
		d.sums(sums)
	}
	d.each(func(t, r int) {
		value, by := d.value(sums[t][r], t, r), g.number(d.token(t, d.l.scale-d.past))
		if !k.super() {
			g.VFMADD231PS(value, by, totals[t][r])
			return
		}
		g.VFMADD213PS(d.sum(t, r), by, value)
		g.VMOVUPS(value, d.sum(t, r))
	})
	d.advance(g.blockBytes(k)-d.pastPanel, d.l.bytes-d.past)
	g.DECQ(blocks)
	g.JNZ(LabelRef("block"))
	if !k.super() {
		d.each(func(t, r int) { g.VMOVUPS(totals[t][r], d.sum(t, r)) })
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

// sums adds the products of a part to sums, by token and panel, and goes on to the next part. It
// makes sums that are nil.
func (g *dotGenerator) sums(sums [][2]vector) {
	if g.wide() {
		g.unsigned(sums)
		return
	}
	for at := 0; at < g.k.part/4; at += g.k.group {
		words := make([][2]vector, g.tokens)
		for step := range g.k.group {
			g.products(words, at+step, step == 0)
		}
		g.each(func(t, r int) {
			w := words[t][r]
			if g.k.super() {
				g.VPMADDWD(g.in(r, g.codeBytes(g.k)), w, w)
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
	g.advance(g.partBytes(g.k), g.k.part)
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
	scale := g.in(r, g.scaleAt(g.k)-g.pastPanel)
	if g.magic != nil {
		g.scaled(sum, scale)
	} else {
		if g.k.offset > 0 {
			above := g.least(t, r)
			g.VPSLLD(U8(uint8(g.k.offset)), above, above)
			g.VPSUBD(above, sum, sum)
		}
		g.VCVTDQ2PS(sum, sum)
		g.VMULPS(scale, sum, sum)
	}
	if !g.k.signed && g.k.offset == 0 {
		g.VFMADD231PS(scale.Offset(g.bytes()), g.least(t, r), sum)
	}
	return sum
}

// least is the sum of what words of pairs of parts make of sums of activations.
func (g *dotGenerator) least(t, r int) vector {
	if !g.k.super() {
		return g.number(g.token(t, g.l.sum-g.past))
	}
	of := g.l.sums
	if g.k.part == 16 {
		of = g.l.halves
	}
	var sum vector
	for i := range g.k.elems / g.k.part / 2 {
		product, pair := g.new(), g.in(r, g.pairsAt(g.k)+g.bytes()*i-g.pastPanel)
		g.VPBROADCASTD(g.token(t, of+4*i-g.past), product)
		if sum != nil && g.wide() {
			g.VPDPWSSD(pair, product, sum)
			continue
		}
		if g.VPMADDWD(pair, product, product); sum == nil {
			sum = product
		} else {
			g.VPADDD(product, sum, sum)
		}
	}
	if g.k.offset == 0 {
		g.VCVTDQ2PS(sum, sum)
	}
	return sum
}
