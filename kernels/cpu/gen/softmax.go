package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// softmaxes generates what stands on exponentials: decays of a scan, a softmax block by
// block; and rows times, or over, a number each.
func softmaxes(c *build.Context) {
	e := newExponential(newVec(c, avx2))
	for _, set := range []isa{avx2, avx512} {
		g := &weighing{newVec(c, set), e}
		g.decays()
		g.softmax()
		g.recurrence()
		g.rows("scaleRows", "times", func(by, v Op) { g.VMULPS(by, v, v) })
		g.rows("divideRows", "over", func(by, v Op) { g.VDIVPS(by, v, v) })
	}
}

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

// decays of a chunk of 16 tokens.
func (g *weighing) decays() {
	g.function("decays", "(y, s *float32, top, a *float64, m *float32, rows int)",
		"sets y[i][j] = exp(top[i] - a[j]) m[j] s[i][j], for rows of 16. Results below about 2^-125 are 0.")
	y, s, top, a, m, rows := g.param("y"), g.param("s"), g.param("top"), g.param("a"), g.param("m"), g.param("rows")
	size := 4 * g.set.lanes
	g.Label("next")
	for from := 0; from < 64; from += size {
		t := g.new()
		g.VBROADCASTSD(Mem{Base: top}, t)
		x := [2]vector{g.new(), g.new()}
		for i, v := range x {
			g.VSUBPD(Mem{Base: a, Disp: 2*from + i*size}, t, v)
		}
		p := g.expOf64(x)
		g.VMULPS(Mem{Base: m, Disp: from}, p, p)
		g.VMULPS(Mem{Base: s, Disp: from}, p, p)
		g.VMOVUPS(p, Mem{Base: y, Disp: from})
	}
	g.ADDQ(U8(64), y)
	g.ADDQ(U8(64), s)
	g.ADDQ(U8(8), top)
	g.DECQ(rows)
	g.JNZ(LabelRef("next"))
	g.end()
}

// softmax of a block of scores, after blocks before it.
func (g *weighing) softmax() {
	g.function("softmax", "(s *float32, n int, scale float32, run *float32)",
		"makes n scores, at least one, exp(scale·s - top) where top is the largest of them and of run[0],",
		"adds them to run[1] exp(run[0] - top), puts top into run[0], and that decay into run[2]. The scores take whole",
		"vectors of memory, of which the last is filled with 0.")
	s, n, run := g.param("s"), g.param("n"), g.param("run")
	scale, most := g.new(), g.new()
	g.VBROADCASTSS(g.Load(g.Param("scale"), g.XMM()), scale)
	g.VBROADCASTSS(Mem{Base: run}, most)
	last, lane := g.last(n)
	at, left := g.GP64(), g.GP64()

	g.MOVQ(s, at)
	g.MOVQ(n, left)
	g.Label("highest")
	v := g.new()
	g.VMULPS(Mem{Base: at}, scale, v)
	g.CMPQ(left, U8(g.set.lanes))
	g.JGE(LabelRef("whole"))
	g.blend(v, last, lane)
	g.Label("whole")
	g.VMOVUPS(v, Mem{Base: at})
	g.VMAXPS(most, v, most)
	g.ADDQ(U8(4*g.set.lanes), at)
	g.SUBQ(U8(g.set.lanes), left)
	g.JGT(LabelRef("highest"))

	top := g.across(most, func(a, b, to vector) { g.VMAXPS(a, b, to) })
	all, old, sum := g.new(), g.new(), g.zero()
	g.VBROADCASTSS(top, all)
	g.VBROADCASTSS(Mem{Base: run}, old)
	g.VMOVSS(top, Mem{Base: run})
	g.MOVQ(s, at)
	g.MOVQ(n, left)
	g.Label("powers")
	x := g.new()
	g.VMOVUPS(Mem{Base: at}, x)
	g.VSUBPS(all, x, x)
	p := g.exp(x)
	g.VMOVUPS(p, Mem{Base: at})
	g.VADDPS(p, sum, sum)
	g.ADDQ(U8(4*g.set.lanes), at)
	g.SUBQ(U8(g.set.lanes), left)
	g.JGT(LabelRef("powers"))

	total := g.across(sum, func(a, b, to vector) { g.VADDPS(a, b, to) })
	g.VSUBPS(all, old, old)
	fade, before := g.exp(old), g.XMM()
	g.VMOVSS(Mem{Base: run, Disp: 4}, before)
	g.VFMADD231SS(fade.AsX(), before, total)
	g.VMOVSS(total, Mem{Base: run, Disp: 4})
	g.VMOVSS(fade.AsX(), Mem{Base: run, Disp: 8})
	g.end()
}

// last masks what a last vector that is not whole has of n elements.
func (g *weighing) last(n reg.Register) (k reg.OpmaskVirtual, lane vector) {
	rest, table := g.GP64(), g.GP64()
	g.LEAQ(g.masks, table)
	g.MOVQ(n, rest)
	g.ANDQ(U8(g.set.lanes-1), rest)
	g.SHLQ(U8(2), rest)
	g.SUBQ(rest, table)
	lane = g.new()
	g.VMOVUPS(Mem{Base: table, Disp: 64}, lane)
	if g.wide() {
		k = g.K()
		g.VPMOVD2M(lane, k)
	}
	return k, lane
}

// blend puts -Inf where a vector has no element.
func (g *weighing) blend(v vector, k reg.OpmaskVirtual, lane vector) {
	inf := g.lanes(g.inf)
	if g.wide() {
		g.VBLENDMPS(v, inf, k, v)
	} else {
		g.VBLENDVPS(lane, v, inf, v)
	}
}

// across takes the lanes of a vector together, halves with each other.
func (g *weighing) across(v vector, with func(a, b, to vector)) vector {
	x := g.XMM()
	if g.wide() {
		y := g.YMM()
		g.VEXTRACTF64X4(U8(1), v, y)
		with(y, v.AsY().(vector), y)
		g.VEXTRACTF32X4(U8(1), y, x)
		with(x, y.AsX().(vector), x)
	} else {
		g.VEXTRACTF128(U8(1), v, x)
		with(x, v.AsX().(vector), x)
	}
	t := g.XMM()
	g.VPERMILPS(U8(0x4e), x, t)
	with(t, x, x)
	g.VPERMILPS(U8(0xb1), x, t)
	with(t, x, x)
	return x
}

// rows times or over a number each.
func (g *weighing) rows(name, how string, with func(by, v Op)) {
	g.function(name, "(y *float32, ys int, x *float32, xs int, by *float32, bs, rows, cols int)",
		"sets y[i] = x[i] "+how+" by[i·bs], for a multiple of 16 columns, at least 16.")
	y, ys, x, xs, by, bs, rows := g.param("y"), g.stride("ys"), g.param("x"), g.stride("xs"), g.param("by"), g.stride("bs"), g.param("rows")
	size, at := g.stride("cols"), g.GP64()
	g.Label("rows")
	b := g.number(Mem{Base: by})
	g.XORQ(at, at)
	g.Label("columns")
	for from := 0; from < 64; from += 4 * g.set.lanes {
		v := g.new()
		g.VMOVUPS(Mem{Base: x, Index: at, Scale: 1, Disp: from}, v)
		with(b, v)
		g.VMOVUPS(v, Mem{Base: y, Index: at, Scale: 1, Disp: from})
	}
	g.ADDQ(U8(64), at)
	g.CMPQ(at, size)
	g.JLT(LabelRef("columns"))
	g.ADDQ(ys, y)
	g.ADDQ(xs, x)
	g.ADDQ(bs, by)
	g.DECQ(rows)
	g.JNZ(LabelRef("rows"))
	g.end()
}
