package main

import (
	"math"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// softmaxes generates what stands on exponentials: decays of a scan, a softmax block by
// block; and rows times, or over, a number each.
func softmaxes(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := newVec(c, set)
		g.decays()
		g.softmax()
		g.recurrence(f32)
		g.recurrence(bf16)
		g.rows("scaleRows", "times", func(by, v Op) { g.VMULPS(by, v, v) })
		g.rows("divideRows", "over", func(by, v Op) { g.VDIVPS(by, v, v) })
	}
}

// decays of a chunk of 16 tokens.
func (g *vec) decays() {
	g.function("decays", "(y, s *float32, top, a *float64, m *float32, rows int)",
		"sets y[i][j] = exp(top[i] - a[j]) m[j] s[i][j], for rows of 16. Results below about 2^-125 are 0.")
	y, s, top, a, m, rows := g.param("y"), g.param("s"), g.param("top"), g.param("a"), g.param("m"), g.param("rows")
	g.hold(12, func(g *vec) { g.expOf64([2]vector{g.new(), g.new()}) })
	g.Label("next")
	for from := 0; from < 64; from += g.bytes() {
		t := g.new()
		g.VBROADCASTSD(Mem{Base: top}, t)
		x := [2]vector{g.new(), g.new()}
		for i, v := range x {
			g.VSUBPD(Mem{Base: a, Disp: 2*from + i*g.bytes()}, t, v)
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
func (g *vec) softmax() {
	g.function("softmax", "(s *float32, n int, scale float32, run *float32)",
		"makes n scores, at least one, exp(scale·s - top) where top is the largest of them and of run[0],",
		"adds them to run[1] exp(run[0] - top), puts top into run[0], and that decay into run[2]. The scores take whole",
		"vectors of memory, of which the last is filled with 0.")
	s, n, run := g.param("s"), g.param("n"), g.param("run")
	scale, most := g.new(), g.new()
	g.VBROADCASTSS(g.Load(g.Param("scale"), g.XMM()), scale)
	g.VBROADCASTSS(Mem{Base: run}, most)
	last := g.rest(g.param("n"))
	at, left := g.GP64(), g.GP64()
	g.hold(12, func(g *vec) { g.exp(g.new()) })

	g.MOVQ(s, at)
	g.MOVQ(n, left)
	g.Label("highest")
	v := g.new()
	g.VMULPS(Mem{Base: at}, scale, v)
	g.CMPQ(left, U8(g.set.lanes))
	g.JGE(LabelRef("whole"))
	g.blend(v, last)
	g.Label("whole")
	g.VMOVUPS(v, Mem{Base: at})
	g.VMAXPS(most, v, most)
	g.ADDQ(U8(4*g.set.lanes), at)
	g.SUBQ(U8(g.set.lanes), left)
	g.JGT(LabelRef("highest"))

	top := g.across(most, g.VMAXPS, 32)
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

	total := g.across(sum, g.VADDPS, 32)
	g.VSUBPS(all, old, old)
	fade, before := g.exp(old), g.XMM()
	g.VMOVSS(Mem{Base: run, Disp: 4}, before)
	g.VFMADD231SS(fade.AsX(), before, total)
	g.VMOVSS(total, Mem{Base: run, Disp: 4})
	g.VMOVSS(fade.AsX(), Mem{Base: run, Disp: 8})
	g.end()
}

// blend puts -Inf where a vector has no element.
func (g *vec) blend(v vector, t tail) {
	inf := g.copy(g.c(float32(math.Inf(-1))))
	if g.wide() {
		g.VBLENDMPS(v, inf, t.k, v)
	} else {
		g.VBLENDVPS(t.mask, v, inf, v)
	}
}

// rows times or over a number each.
func (g *vec) rows(name, how string, with func(by, v Op)) {
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
