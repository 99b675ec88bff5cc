package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Numbers move between places in memory and lanes, and between lanes.

// quadsOf loads four numbers from each of as many places as a vector has room for.
func (g *vec) quadsOf(from [4]Mem) vector {
	v := g.zero() // all of it: else it would seem to live before
	g.VMOVUPS(from[0], v.AsX())
	for i := 1; i < g.set.lanes/4; i++ {
		if g.wide() {
			g.VINSERTF32X4(U8(i), from[i], v, v)
		} else {
			g.VINSERTF128(U8(i), from[i], v, v)
		}
	}
	return v
}

// gathered is four numbers that are apart in memory.
func (g *vec) gathered(at [4]Mem) reg.VecVirtual {
	v := g.XMM()
	g.VMOVSS(at[0], v)
	for i := 1; i < 4; i++ {
		g.VINSERTPS(U8(uint8(i<<4)), at[i], v, v)
	}
	return v
}

// scatter writes the four numbers of a vector.
func (g *vec) scatter(v Op, at [4]Mem) {
	g.VMOVSS(v, at[0])
	for i := 1; i < 4; i++ {
		g.VEXTRACTPS(U8(uint8(i)), v, at[i])
	}
}

// alike is a register as long as another.
func (g *vec) alike(v vector) vector {
	if v.Size() == 64 {
		return g.ZMM()
	}
	return g.YMM()
}

// transposed are the columns of 4x4 numbers in each 128 bits of four vectors.
func (g *vec) transposed(m [4]vector) [4]vector {
	pair := func(op func(...Op), a, b vector) vector { v := g.alike(a); op(b, a, v); return v }
	a, b := pair(g.VUNPCKLPS, m[0], m[1]), pair(g.VUNPCKLPS, m[2], m[3])
	c, d := pair(g.VUNPCKHPS, m[0], m[1]), pair(g.VUNPCKHPS, m[2], m[3])
	return [4]vector{pair(g.VUNPCKLPD, a, b), pair(g.VUNPCKHPD, a, b), pair(g.VUNPCKLPD, c, d), pair(g.VUNPCKHPD, c, d)}
}

// fold adds lanes that are some bits apart: those of a come to where they are lower, those of b to
// where they are higher.
func (g *vec) fold(add func(...Op), apart int, a, b vector) vector {
	lo, hi := g.alike(a), g.alike(a)
	shuffle := func(op func(...Op), lower, upper int) { op(U8(lower), b, a, lo); op(U8(upper), b, a, hi) }
	switch {
	case apart == 256:
		shuffle(g.VSHUFF64X2, 0x44, 0xee)
	case apart == 128 && a.Size() == 64:
		shuffle(g.VSHUFF32X4, 0x88, 0xdd)
	case apart == 128 && g.wide(): // in all of the 32 registers
		shuffle(g.VSHUFF64X2, 0, 3)
	case apart == 128:
		g.VPERM2F128(U8(0x20), b, a, lo)
		g.VPERM2F128(U8(0x31), b, a, hi)
	case apart == 64:
		g.VUNPCKLPD(b, a, lo)
		g.VUNPCKHPD(b, a, hi)
	default:
		shuffle(g.VSHUFPS, 0x88, 0xdd)
	}
	add(hi, lo, lo)
	return lo
}

// halved takes the halves of a vector together.
func (g *vec) halved(v vector, with func(...Op)) vector {
	if v.Size() == 64 {
		half := g.YMM()
		g.VEXTRACTF64X4(U8(1), v, half)
		with(half, v.AsY(), half)
		return half
	}
	half := g.XMM()
	if g.wide() { // in all of the 32 registers
		g.VEXTRACTF32X4(U8(1), v, half)
	} else {
		g.VEXTRACTF128(U8(1), v, half)
	}
	with(half, v.AsX(), half)
	return half
}

// across takes the lanes of a vector together, halves with each other until lanes of some bits are
// left.
func (g *vec) across(v vector, with func(...Op), bits int) vector {
	for v.Size() > 16 {
		v = g.halved(v, with)
	}
	t := g.XMM()
	for _, order := range []int{0x4e, 0xb1}[:64/bits] {
		g.VPERMILPS(U8(order), v, t)
		with(t, v, v)
	}
	return v
}
