package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand"
)

// Where exp is computed: e to the power of more overflows, and of less than 2^least is 0.
const mostPower, leastPower = 89, -125

// expSeries is of (e^r - 1 - r) / r² in f32, from Moshier's Cephes expf.
var expSeries = []float32{5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4}

// exp is e to the power of x, of which x takes the place. Results below 2^-125, or
// about that, are 0.
func (g *vec) exp(x vector) vector {
	x = g.atMost(g.c(mostPower), x)
	n := g.mul(g.c(math.Log2E), x)
	if g.wide() {
		g.VRNDSCALEPS(U8(8), n, n)
	} else {
		g.VROUNDPS(U8(8), n, n)
	}
	for _, part := range []float32{0.693359375, -2.12194440e-4} { // of log 2
		g.VFNMADD231PS(g.c(part), n, x)
	}
	return g.power(n, x)
}

// expOf64 is e to the power of as many numbers in f64 as there are lanes of f32, lower ones first.
func (g *vec) expOf64(x [2]vector) vector {
	d := doubles{g}
	var n, r [2]vector
	for i, v := range x {
		v = d.atMost(mostPower, v)
		k := d.mul(d.c(math.Log2E), v)
		if g.wide() {
			g.VRNDSCALEPD(U8(8), k, k)
		} else {
			g.VROUNDPD(U8(8), k, k)
		}
		g.VFNMADD231PD(d.c(math.Ln2), k, v)
		n[i], r[i] = g.round(k), g.round(v)
	}
	whole, rest := g.new(), g.new()
	g.join(n, whole)
	g.join(r, rest)
	return g.power(whole, rest)
}

// power is 2^n e^r.
func (g *vec) power(n, r vector) vector {
	p := g.polynomial(r, expSeries...)
	g.VFMADD213PS(r, g.mul(r, r), p)
	g.VADDPS(g.c(1), p, p)
	if g.wide() {
		keep := g.K()
		g.VCMPPS(U8(5), g.c(leastPower), n, keep) // not less, nor a NaN
		g.VSCALEFPS(n, p, p)
		g.VMOVAPS_Z(p, keep, p)
		return p
	}
	// In two steps, since 2^n alone may overflow where the product does not.
	less, half := g.new(), g.new()
	g.VCMPPS(U8(1), g.c(leastPower), n, less)
	g.VCVTPS2DQ(n, n)
	g.VPSRAD(U8(1), n, half)
	g.VPSUBD(half, n, n)
	for _, h := range []vector{half, n} {
		g.VPSLLD(U8(23), h, h)
		g.VPADDD(g.c(1), h, h)
		g.VMULPS(h, p, p)
	}
	g.VANDNPS(p, less, p)
	return p
}
