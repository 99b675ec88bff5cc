package main

import (
	"math"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// rotations generates sines and cosines, and what turns pairs of channels by them.
func rotations(c *build.Context) {
	g := newVec(c, avx2)
	g.angles()
	g.turn()
}

// Half of pi in three parts, of which the first two are as long as can be, and the polynomials of
// (sin r - r) / r³ and cos r in r², for r up to a quarter of pi: those of Moshier's Cephes.
var (
	halfPi = []float64{1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33}
	sine   = []float64{-1.66666666666666307295e-1, 8.33333333332211858878e-3, -1.98412698295895385996e-4, 2.75573136213857245213e-6, -2.50507477628578072866e-8, 1.58962301576546568060e-10}
	cosine = []float64{1, -0.5, 4.16666666666665929218e-2, -1.38888888888730564116e-3, 2.48015872888517045348e-5, -2.75573141792967388112e-7, 2.08757008419747316778e-9, -1.13585365213876817300e-11}
)

func (g *vec) angles() {
	d, two := doubles{g}, g.bits(2)
	g.function("angles", "(sin, cos *float32, freq *float64, position float64, n int)",
		"sets sin[i] and cos[i] to those of position · freq[i], which is below 2^31, for n angles, a multiple of 4, at least 4.",
		"They are computed in f64, and rounded once.")
	sin, cos, freq, n := g.param("sin"), g.param("cos"), g.param("freq"), g.param("n")
	position := g.YMM()
	g.VBROADCASTSD(g.Load(g.Param("position"), g.XMM()), position)
	g.Label("next")
	r := d.mul(Mem{Base: freq}, position)
	k := d.mul(d.c(2/math.Pi), r)
	g.VROUNDPD(U8(8), k, k)
	for _, part := range halfPi {
		g.VFNMADD231PD(d.c(part), k, r)
	}
	r2 := d.mul(r, r)
	p := d.mul(r2, d.polynomial(r2, sine...)) // sin r = r + r³ p
	g.VFMADD213PD(r, r, p)
	q := d.polynomial(r2, cosine...)

	x, y, odd := g.XMM(), g.XMM(), g.XMM() // in f32, of which odd turns change places
	g.VCVTPD2PSY(p, x)
	g.VCVTPD2PSY(q, y)
	g.VCVTPD2DQY(k, odd)
	a, b, sign := g.XMM(), g.XMM(), g.XMM()
	swap := g.XMM()
	g.VPSLLD(U8(31), odd, swap)
	g.VBLENDVPS(swap, y, x, a)
	g.VBLENDVPS(swap, x, y, b)
	g.VPAND(two, odd, sign)
	g.VPSLLD(U8(30), sign, sign)
	g.VXORPS(sign, a, a)
	g.VPSRLD(U8(31), swap, swap) // 1 where the turn is odd
	g.VPADDD(swap, odd, odd)     // and so 2 more where cos is negative
	g.VPAND(two, odd, sign)
	g.VPSLLD(U8(30), sign, sign)
	g.VXORPS(sign, b, b)
	g.VMOVUPS(a, Mem{Base: sin})
	g.VMOVUPS(b, Mem{Base: cos})
	g.ADDQ(U8(16), sin)
	g.ADDQ(U8(16), cos)
	g.ADDQ(U8(32), freq)
	g.SUBQ(U8(4), n)
	g.JNZ(LabelRef("next"))
	g.end()
}

func (g *vec) turn() {
	g.function("turn", "(y, x, sin, cos *float32, heads, unit, half int)",
		"turns channels j and j + half of each head, of unit channels, for half a multiple of 8, at least 8.")
	y, x, sin, cos, heads := g.param("y"), g.param("x"), g.param("sin"), g.param("cos"), g.param("heads")
	unit, half := g.stride("unit"), g.stride("half")
	g.Label("heads")
	at, upper := g.GP64(), g.GP64()
	g.XORQ(at, at)
	g.MOVQ(half, upper)
	g.Label("next")
	a, b, s, c := g.YMM(), g.YMM(), g.YMM(), g.YMM()
	g.VMOVUPS(Mem{Base: x, Index: at, Scale: 1}, a)
	g.VMOVUPS(Mem{Base: x, Index: upper, Scale: 1}, b)
	g.VMOVUPS(Mem{Base: sin, Index: at, Scale: 1}, s)
	g.VMOVUPS(Mem{Base: cos, Index: at, Scale: 1}, c)
	first, second := g.YMM(), g.YMM()
	g.VMULPS(b, s, first)
	g.VFMSUB231PS(a, c, first)
	g.VMULPS(a, s, second)
	g.VFMADD231PS(b, c, second)
	g.VMOVUPS(first, Mem{Base: y, Index: at, Scale: 1})
	g.VMOVUPS(second, Mem{Base: y, Index: upper, Scale: 1})
	g.ADDQ(U8(32), at)
	g.ADDQ(U8(32), upper)
	g.CMPQ(at, half)
	g.JLT(LabelRef("next"))
	g.ADDQ(unit, x)
	g.ADDQ(unit, y)
	g.DECQ(heads)
	g.JNZ(LabelRef("heads"))
	g.end()
}
