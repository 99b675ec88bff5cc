package main

import (
	"github.com/krait-ml/krait/kernels/cpu/gen/common"
	. "github.com/mmcloughlin/avo/operand"
)

// number is a number of memory, or of the lowest lane of a register, in all lanes.
func (g *vec) number(from Op) vector {
	v := g.new()
	g.VBROADCASTSS(from, v)
	return v
}

// widen loads numbers of a format as f32, as many as a register has lanes.
func (g *vec) widen(f format, from Op, to vector) {
	switch f {
	case f32:
		g.VMOVUPS(from, to)
	case bf16:
		g.VPMOVZXWD(from, to)
		g.VPSLLD(U8(16), to, to)
	case f16:
		g.VCVTPH2PS(from, to)
	}
}

// copy is a register with a constant, or with what another has.
func (g *vec) copy(from Op) vector {
	v := g.new()
	g.VMOVUPS(from, v)
	return v
}

func (g *vec) add(a Op, b vector) vector { v := g.new(); g.VADDPS(a, b, v); return v }
func (g *vec) mul(a Op, b vector) vector { v := g.new(); g.VMULPS(a, b, v); return v }
func (g *vec) sub(a Op, b vector) vector { v := g.new(); g.VSUBPS(a, b, v); return v } // b - a

// and has the bits of both.
func (g *vec) and(a Op, b, to vector) {
	if g.wide() {
		g.VPANDD(a, b, to)
	} else {
		g.VPAND(a, b, to)
	}
}

// atMost and atLeast give a NaN for a NaN.
func (g *vec) atMost(most Op, v vector) vector   { m := g.copy(most); g.VMINPS(v, m, m); return m }
func (g *vec) atLeast(least Op, v vector) vector { m := g.copy(least); g.VMAXPS(v, m, m); return m }

func (g *vec) zero() vector {
	v := g.new()
	g.clear(v)
	return v
}

func (g *vec) clear(v vector) {
	if g.wide() {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
}

// polynomial is Σ c[i] r^i, by Horner's rule.
func (g *vec) polynomial(r vector, c ...float32) vector {
	p := g.copy(g.c(c[len(c)-1]))
	for i := len(c) - 2; i >= 0; i-- {
		g.VFMADD213PS(g.c(c[i]), r, p)
	}
	return p
}

const mostBits = 0x7F7FFFFF // the largest f32

var exp2Series = common.Exp2
