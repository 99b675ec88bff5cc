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
