package main

import (
	"math"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

const maximaBlock = 32 // scores of which the highest is wanted

// maximum generates what choosing a token has to read all scores for.
func maximum(c *build.Context) {
	g := newVec(c, avx2)
	g.function("maxima", "(x, highest *float32, blocks int) (broken int)",
		"finds the highest of each 32 numbers, and returns not 0 where any is above all finite ones, or not a number.")
	x, highest, blocks := g.param("x"), g.param("highest"), g.param("blocks")
	bound, broken := g.copy(g.c(math.MaxFloat32)), g.zero()
	g.Label("next")
	var v [maximaBlock / 8]vector
	for i := range v {
		v[i] = g.YMM()
		g.VMOVUPS(Mem{Base: x, Disp: 32 * i}, v[i])
		over := g.YMM()
		g.VCMPPS(U8(6), bound, v[i], over) // not at most that
		g.VORPS(over, broken, broken)
	}
	g.VMAXPS(v[1], v[0], v[0])
	g.VMAXPS(v[3], v[2], v[2])
	g.VMAXPS(v[2], v[0], v[0])
	g.VMOVSS(g.across(v[0], g.VMAXPS, 32), Mem{Base: highest})
	g.ADDQ(U8(4*maximaBlock), x)
	g.ADDQ(U8(4), highest)
	g.DECQ(blocks)
	g.JNZ(LabelRef("next"))
	bits := g.GP32()
	g.VMOVMSKPS(broken, bits)
	g.Store(bits.As64(), g.Return("broken"))
	g.end()
	g.likelihoods()
}

// likelihoods are in f64: x is n ln 2 and a rest, of which e to the power is a series to
// the tenth power.
func (g *vec) likelihoods() {
	d, bias := doubles{g}, g.constant(constant{1023, 8})
	series, factorial := []float64{1}, 1.0
	for i := 1; i < 11; i++ {
		factorial *= float64(i)
		series = append(series, 1/factorial)
	}
	g.function("likelihoods", "(w *float64, s *float32, n int, highest, by float64) (mass float64)",
		"sets w[i] = exp((s[i] - highest)·by), and 0 where that is below exp(-690), for n scores that are at most",
		"the highest, a multiple of 4, at least 4, and returns their sum.")
	w, s, n := g.param("w"), g.param("s"), g.param("n")
	highest, by, sum := g.YMM(), g.YMM(), g.zero()
	g.VBROADCASTSD(g.Load(g.Param("highest"), g.XMM()), highest)
	g.VBROADCASTSD(g.Load(g.Param("by"), g.XMM()), by)
	g.Label("next")
	x, none, whole := g.YMM(), g.YMM(), g.XMM()
	g.VCVTPS2PD(Mem{Base: s}, x)
	g.VSUBPD(highest, x, x)
	g.VMULPD(by, x, x)
	g.VCMPPD(U8(1), d.c(-690), x, none)
	k := d.mul(d.c(math.Log2E), x)
	g.VROUNDPD(U8(8), k, k)
	g.VFNMADD231PD(d.c(math.Ln2), k, x)
	g.VFNMADD231PD(d.c(2.3190468138462996e-17), k, x)
	p := d.polynomial(x, series...)
	g.VCVTPD2DQY(k, whole)
	g.VPMOVSXDQ(whole, k)
	g.VPADDQ(bias, k, k)
	g.VPSLLQ(U8(52), k, k)
	g.VMULPD(k, p, p)
	g.VANDNPD(p, none, p)
	g.VADDPD(p, sum, sum)
	g.VMOVUPD(p, Mem{Base: w})
	g.ADDQ(U8(32), w)
	g.ADDQ(U8(16), s)
	g.SUBQ(U8(4), n)
	g.JNZ(LabelRef("next"))
	g.Store(g.across(sum, g.VADDPD, 64), g.Return("mass"))
	g.end()
}
