package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
)

// exponential has the constants of exp: of the range reduction in f32 and in f64, and of
// the polynomial (those of Moshier's Cephes expf).
type exponential struct {
	log2e, ln2Hi, ln2Lo, most, least Mem
	log2e64, ln264, most64           Mem
	one                              Mem
	q                                []Mem
	inf, masks                       Mem
}

func newExponential(g *vec) *exponential {
	f := func(name string, v float32) Mem { return g.static(name, U32(math.Float32bits(v))) }
	d := func(name string, v float64) Mem { return g.static(name, U64(math.Float64bits(v))) }
	e := &exponential{
		log2e: f("log2e", math.Log2E), ln2Hi: f("ln2_hi", 0.693359375), ln2Lo: f("ln2_lo", -2.12194440e-4),
		most: f("most", 89), least: f("least", -125), one: f("one", 1),
		log2e64: d("log2e_64", math.Log2E), ln264: d("ln2_64", math.Ln2), most64: d("most_64", 89),
		inf: f("minus_inf", float32(math.Inf(-1))),
	}
	for i, v := range []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		e.q = append(e.q, f("q"+string(rune('5'-i)), v))
	}
	// A vector at 4·(16 - n) bytes from the start has n lanes.
	e.masks = g.StaticGlobal("ends")
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 32 {
		v := U32(0xffffffff)
		if i >= 16 {
			v = 0
		}
		g.AddDatum(4*i, v)
	}
	return e
}

// weighing is what functions of an instruction set share.
type weighing struct {
	*vec
	*exponential
}

// lanes broadcasts a constant.
func (g *weighing) lanes(m Mem) vector {
	v := g.new()
	if g.wide() {
		g.VBROADCASTSS(m, v)
	} else {
		g.VMOVUPS(m, v)
	}
	return v
}

// op is an operation with a constant.
func (g *weighing) op(plain, broadcast func(...Op), m Mem, v ...Op) {
	if g.wide() {
		broadcast(append([]Op{m}, v...)...)
	} else {
		plain(append([]Op{m}, v...)...)
	}
}

// exp is e to the power of x, of which x takes the place. Results below 2^-125, or
// about that, is 0.
func (g *weighing) exp(x vector) vector {
	g.VMINPS(x, g.lanes(g.most), x) // in this order NaN stays
	n := g.new()
	g.op(g.VMULPS, g.VMULPS_BCST, g.log2e, x, n)
	if g.wide() {
		g.VRNDSCALEPS(U8(8), n, n)
	} else {
		g.VROUNDPS(U8(8), n, n)
	}
	g.op(g.VFNMADD231PS, g.VFNMADD231PS_BCST, g.ln2Hi, n, x)
	g.op(g.VFNMADD231PS, g.VFNMADD231PS_BCST, g.ln2Lo, n, x)
	return g.power(n, x)
}

// expOf64 is e to the power of as many numbers in f64 as there are lanes of f32, lower ones first.
func (g *weighing) expOf64(x [2]vector) vector {
	most := g.new()
	if g.wide() {
		g.VBROADCASTSD(g.most64, most)
	} else {
		g.VMOVUPS(g.most64, most)
	}
	n, r := [2]vector{g.new(), g.new()}, g.new()
	for i, v := range x {
		g.VMINPD(v, most, v)
		g.op(g.VMULPD, g.VMULPD_BCST, g.log2e64, v, n[i])
		if g.wide() {
			g.VRNDSCALEPD(U8(8), n[i], n[i])
		} else {
			g.VROUNDPD(U8(8), n[i], n[i])
		}
		g.op(g.VFNMADD231PD, g.VFNMADD231PD_BCST, g.ln264, n[i], v)
	}
	whole := g.new()
	g.narrow(n, whole)
	g.narrow(x, r)
	return g.power(whole, r)
}

// narrow rounds to f32.
func (g *weighing) narrow(x [2]vector, to vector) {
	if g.wide() {
		lo, hi := g.YMM(), g.YMM()
		g.VCVTPD2PS(x[0], lo)
		g.VCVTPD2PS(x[1], hi)
		g.VINSERTF64X4(U8(1), hi, lo.AsZ(), to)
		return
	}
	lo, hi := g.XMM(), g.XMM()
	g.VCVTPD2PSY(x[0], lo)
	g.VCVTPD2PSY(x[1], hi)
	g.VINSERTF128(U8(1), hi, lo.AsY(), to)
}

// power is 2^n e^r.
func (g *weighing) power(n, r vector) vector {
	p, r2 := g.lanes(g.q[0]), g.new()
	for _, q := range g.q[1:] {
		g.op(g.VFMADD213PS, g.VFMADD213PS_BCST, q, r, p)
	}
	g.VMULPS(r, r, r2)
	g.VFMADD213PS(r, r2, p)
	g.op(g.VADDPS, g.VADDPS_BCST, g.one, p, p)
	if g.wide() {
		keep := g.K()
		g.VCMPPS_BCST(U8(5), g.least, n, keep) // not less, nor a NaN
		g.VSCALEFPS(n, p, p)
		g.VMOVAPS_Z(p, keep, p)
		return p
	}
	// In two steps, since 2^n alone may overflow where the product does not.
	less, half := g.new(), g.new()
	g.VCMPPS(U8(1), g.least, n, less)
	g.VCVTPS2DQ(n, n)
	g.VPSRAD(U8(1), n, half)
	g.VPSUBD(half, n, n)
	for _, h := range []vector{half, n} {
		g.VPSLLD(U8(23), h, h)
		g.VPADDD(g.one, h, h)
		g.VMULPS(h, p, p)
	}
	g.VANDNPS(p, less, p)
	return p
}
