package main

import (
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
