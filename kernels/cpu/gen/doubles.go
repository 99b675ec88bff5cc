package main

import (
	"math"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
	. "github.com/mmcloughlin/avo/operand"
)

// doubles writes operations on vectors of float64: functions of f32 are computed in them, with
// relative errors below 1e-9, so that all that is lost is the rounding of the result.
type doubles struct{ *vec }

// each computes a function of f32 in float64, and rounds what it gives. The two halves
// of a vector are written in turns.
func (g *vec) each(x []vector, value func(d doubles, x []vector) vector) vector {
	y, halves := g.new(), [2]vector{}
	g.together(2, func(half int) {
		var in []vector
		for _, v := range x {
			in = append(in, g.double(v, half))
		}
		halves[half] = g.round(value(doubles{g}, in))
	})
	g.join(halves, y)
	return y
}

// join makes a vector of the lower halves of two.
func (g *vec) join(halves [2]vector, to vector) {
	if g.wide() {
		g.VINSERTF64X4(U8(1), halves[1].AsY(), halves[0], to)
	} else {
		g.VINSERTF128(U8(1), halves[1].AsX(), halves[0], to)
	}
}

// of is each for one operand.
func (g *vec) of(x vector, value func(d doubles, x vector) vector) vector {
	return g.each([]vector{x}, func(d doubles, x []vector) vector { return value(d, x[0]) })
}

// double is a half of a vector.
func (g *vec) double(v vector, half int) vector {
	d, part := g.new(), g.new()
	if g.wide() {
		g.VEXTRACTF64X4(U8(half), v, part.AsY())
		g.VCVTPS2PD(part.AsY(), d)
	} else {
		g.VEXTRACTF128(U8(half), v, part.AsX())
		g.VCVTPS2PD(part.AsX(), d)
	}
	return d
}

// round is as many f32.
func (g *vec) round(d vector) vector {
	v := g.zero() // all of it: else it would seem to live before
	if g.wide() {
		g.VCVTPD2PS(d, v.AsY())
	} else {
		g.VCVTPD2PSY(d, v.AsX())
	}
	return v
}

func (d doubles) c(v float64) Op { return d.constant(constant{math.Float64bits(v), 8}) }

func (d doubles) add(a Op, b vector) vector { v := d.new(); d.VADDPD(a, b, v); return v }
func (d doubles) mul(a Op, b vector) vector { v := d.new(); d.VMULPD(a, b, v); return v }
func (d doubles) sub(a Op, b vector) vector { v := d.new(); d.VSUBPD(a, b, v); return v } // b - a

// atMost and atLeast give a NaN for a NaN.
func (d doubles) atMost(c float64, v vector) vector {
	m := d.copy(d.c(c))
	d.VMINPD(v, m, m)
	return m
}

func (d doubles) atLeast(c float64, v vector) vector {
	m := d.copy(d.c(c))
	d.VMAXPD(v, m, m)
	return m
}

// polynomial is Σ c[i] r^i, by Horner's rule.
func (d doubles) polynomial(r vector, c ...float64) vector {
	p := d.copy(d.c(c[len(c)-1]))
	for i := len(c) - 2; i >= 0; i-- {
		d.VFMADD213PD(d.c(c[i]), r, p)
	}
	return p
}

// exp is e^x: x = k log 2 + r, and e^x = 2^k e^r.
func (d doubles) exp(x vector) vector {
	const magic = 3 << 51
	bias := 0.
	if !d.wide() { // the low bits of t are those of 2^k: of 0 where x ends below, and of infinity above
		bias = 1023
		x = d.atMost(1024*math.Ln2, d.atLeast(-1023*math.Ln2, x))
	}
	t := d.copy(d.c(magic + bias))
	d.VFMADD231PD(d.c(math.Log2E), x, t)
	k, r := d.sub(d.c(magic+bias), t), d.copy(x)
	d.VFNMADD231PD(d.c(math.Ln2), k, r)
	if d.wide() {
		d.VRANGEPD(U8(2), d.c(1), r, r) // where x is large, let the series be finite and above 0
		p := d.polynomial(r, common.Exp...)
		d.VSCALEFPD(k, p, p)
		return p
	}
	d.VPSLLQ(U8(52), t, t)
	return d.mul(t, d.polynomial(r, common.Exp...))
}

// minusAbs is -|x|.
func (d doubles) minusAbs(x vector) vector {
	v := d.new()
	d.VORPD(d.constant(constant{1 << 63, 8}), x, v)
	return v
}

// belowZero is a where x has a sign, else b.
func (d doubles) belowZero(x, a, b vector) vector {
	v := d.new()
	if d.wide() {
		negative := d.K()
		d.VPMOVQ2M(x, negative)
		d.VBLENDMPD(a, b, negative, v)
	} else {
		d.VBLENDVPD(x, a, b, v)
	}
	return v
}

// over is n / x for an x that is at least 1, and not huge.
func (d doubles) over(x, n vector) vector {
	q := d.new()
	if !d.wide() {
		d.VDIVPD(x, n, q)
		return q
	}
	e := d.copy(d.c(1)) // 14 bits, and a series of their error
	d.VRCP14PD(x, q)
	d.VFNMADD231PD(q, x, e)
	d.VFMADD213PD(e, e, e)
	d.VFMADD213PD(q, e, q)
	return d.mul(n, q)
}

// sigmoid is 1 / (1 + exp(-x)) = n / (1 + w), w being exp(-|x|), and n that where x is
// below 0, else 1.
func (d doubles) sigmoid(x vector) vector {
	w := d.exp(d.minusAbs(x))
	return d.over(d.add(d.c(1), w), d.belowZero(x, w, d.copy(d.c(1))))
}

func (d doubles) silu(x vector) vector { return d.mul(d.sigmoid(x), x) }

// softplus is max(x, 0) + log(1 + exp(-|x|)).
func (d doubles) softplus(x vector) vector {
	w := d.exp(d.minusAbs(x))
	y := d.atLeast(0, x)
	d.VFMADD231PD(d.polynomial(w, common.Log1p...), w, y)
	return y
}

func (d doubles) geluTanh(x vector) vector {
	const twice = 2 * 0.79788456080286535588 // sqrt(2/π)
	u := d.copy(d.c(twice))
	d.VFMADD231PD(d.mul(x, x), d.copy(d.c(twice*0.044715)), u)
	return d.mul(x, d.sigmoid(d.mul(x, u)))
}

// gelu is x times a part of the normal distribution: below -|x| there is
// exp(-x²/2) s P(s), s being 1 / (1 + 0.3 |x|).
func (d doubles) gelu(x vector) vector {
	abs := d.new()
	d.VANDPD(d.constant(constant{1<<63 - 1, 8}), x, abs)
	long := d.copy(d.c(1))
	d.VFMADD231PD(d.c(0.3), d.atMost(100, abs), long)
	s := d.over(long, d.copy(d.c(1)))
	below := d.mul(s, d.polynomial(s, common.Tail...))
	below = d.mul(below, d.exp(d.mul(x, d.mul(d.c(-0.5), x))))
	return d.mul(x, d.belowZero(x, below, d.sub(below, d.copy(d.c(1)))))
}
