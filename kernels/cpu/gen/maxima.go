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
	most := g.static("most", U32(math.Float32bits(math.MaxFloat32)))
	g.function("maxima", "(x, highest *float32, blocks int) (broken int)",
		"finds the highest of each 32 numbers, and returns not 0 where any is above all finite ones, or not a number.")
	x, highest, blocks := g.param("x"), g.param("highest"), g.param("blocks")
	bound, broken := g.YMM(), g.zero()
	g.VMOVUPS(most, bound)
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
	best, other := g.XMM(), g.XMM()
	g.VEXTRACTF128(U8(1), v[0], best)
	g.VMAXPS(v[0].AsX(), best, best)
	g.VPERMILPS(U8(0x4e), best, other)
	g.VMAXPS(other, best, best)
	g.VPERMILPS(U8(0xb1), best, other)
	g.VMAXPS(other, best, best)
	g.VMOVSS(best, Mem{Base: highest})
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
	number := func(name string, v float64) Mem { return g.static(name, U64(math.Float64bits(v))) }
	log2e, ln2Hi, ln2Lo := number("log2e", math.Log2E), number("ln2_hi", math.Ln2), number("ln2_lo", 2.3190468138462996e-17)
	least, bias := number("least", -690), g.static("bias", U64(1023))
	var series []Mem
	factorial := 1.0
	for i := range 11 {
		factorial *= float64(max(1, i))
		series = append(series, number("c"+string(rune('a'+i)), 1/factorial))
	}
	g.function("likelihoods", "(w *float64, s *float32, n int, highest, by float64) (mass float64)",
		"sets w[i] = exp((s[i] - highest)·by), and 0 where that is below exp(-690), for n scores that are at most",
		"the highest, a multiple of 4, at least 4, and returns their sum.")
	w, s, n := g.param("w"), g.param("s"), g.param("n")
	highest, by, sum := g.YMM(), g.YMM(), g.zero()
	g.VBROADCASTSD(g.Load(g.Param("highest"), g.XMM()), highest)
	g.VBROADCASTSD(g.Load(g.Param("by"), g.XMM()), by)
	g.Label("next")
	x, k, p, none, whole := g.YMM(), g.YMM(), g.YMM(), g.YMM(), g.XMM()
	g.VCVTPS2PD(Mem{Base: s}, x)
	g.VSUBPD(highest, x, x)
	g.VMULPD(by, x, x)
	g.VCMPPD(U8(1), least, x, none)
	g.VMULPD(log2e, x, k)
	g.VROUNDPD(U8(8), k, k)
	g.VFNMADD231PD(ln2Hi, k, x)
	g.VFNMADD231PD(ln2Lo, k, x)
	g.VMOVUPD(series[10], p)
	for i := 9; i >= 0; i-- {
		g.VFMADD213PD(series[i], x, p)
	}
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
	upper, total := g.XMM(), g.XMM()
	g.VEXTRACTF128(U8(1), sum, upper)
	g.VADDPD(sum.AsX(), upper, total)
	g.VPERMILPD(U8(1), total, upper)
	g.VADDSD(upper, total, total)
	g.Store(total, g.Return("mass"))
	g.end()
}
