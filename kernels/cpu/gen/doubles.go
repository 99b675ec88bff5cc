package main

import (
	"math"

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
	if g.wide() {
		g.VINSERTF64X4(U8(1), halves[1].AsY(), halves[0], y)
	} else {
		g.VINSERTF128(U8(1), halves[1].AsX(), halves[0], y)
	}
	return y
}

// of is each for one operand.
func (g *vec) of(x vector, value func(d doubles, x vector) vector) vector {
	return g.each([]vector{x}, func(d doubles, x []vector) vector { return value(d, x[0]) })
}

// double is a half of a vector.
func (g *vec) double(v vector, half int) vector {
	d, part := g.new(), g.new()
	switch {
	case g.wide():
		g.VEXTRACTF64X4(U8(half), v, part.AsY())
		g.VCVTPS2PD(part.AsY(), d)
	default:
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

// Series that interpolate at the zeros of Chebyshev's polynomials: e^r for r between
// -log(2)/2 and log(2)/2, log(1+w)/w for w between 0 and 1, and what tail says.
var (
	expSeries = []float64{1, 1, 0x1.00000028b7ad0p-1, 0x1.555555676c0dfp-3, 0x1.5554ac342f79ep-5, 0x1.1110c5ed95239p-7,
		0x1.6d75e5bb47f01p-10, 0x1.a152097a5fd28p-13}
	log1pSeries = []float64{0x1.fffffffed8c7bp-1, -0x1.fffffd65a93acp-2, 0x1.5554d749ef487p-2, -0x1.ffed11a358664p-3,
		0x1.98da7a155e551p-3, -0x1.50ca34d7e598bp-3, 0x1.1280b7c71ae34p-3, -0x1.9cf36293f2432p-4, 0x1.041b9d1381107p-4,
		-0x1.e83ede10ee73fp-6, 0x1.247963d998a1cp-7, -0x1.485b9225a061ep-10}
	tailSeries = []float64{0x1.ea392a9acfd30p-4, 0x1.ea260e2f94606p-4, 0x1.bec8be046f5ccp-4, 0x1.62b9f6d298b98p-4,
		0x1.e34c192fe8c12p-5, 0x1.113d3150a2e73p-5, -0x1.60ba090b22f25p-5, 0x1.bb18949132041p-4, -0x1.b4b1e2c48bbd0p-3,
		0x1.766d26fd034b1p-3, -0x1.2f109823f80d7p-4, 0x1.85bf665d33b49p-7}
)

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
		p := d.polynomial(r, expSeries...)
		d.VSCALEFPD(k, p, p)
		return p
	}
	d.VPSLLQ(U8(52), t, t)
	return d.mul(t, d.polynomial(r, expSeries...))
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
	d.VFMADD231PD(d.polynomial(w, log1pSeries...), w, y)
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
	below := d.mul(s, d.polynomial(s, tailSeries...))
	below = d.mul(below, d.exp(d.mul(x, d.mul(d.c(-0.5), x))))
	return d.mul(x, d.belowZero(x, below, d.sub(below, d.copy(d.c(1)))))
}
