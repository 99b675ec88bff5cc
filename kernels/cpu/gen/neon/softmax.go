package main

import (
	"math"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
)

// softmaxes generates what the generator for amd64 does.
func softmaxes(f *file) {
	decays(f)
	softmax(f)
	recurrence(f)
	for _, r := range [][3]string{{"scaleRows", "times", "fmul"}, {"divideRows", "over", "fdiv"}} {
		g := f.function(r[0], "(y *float32, ys int, x *float32, xs int, by *float32, bs, rows, cols int)",
			"sets y[i] = x[i] "+r[1]+" by[i·bs], for a multiple of 16 columns, at least 16.")
		y, ys, x, xs := g.param("y"), g.stride("ys", 4), g.param("x"), g.stride("xs", 4)
		by, bs, rows := g.param("by"), g.stride("bs", 4), g.param("rows")
		g.at("rows")
		b := g.all(g.peek(by, 4))
		from, to, left := g.rows(x, xs, 1)[0], g.rows(y, ys, 1)[0], g.param("cols")
		g.at("columns")
		v := g.row16(from)
		for i := range v {
			v[i] = g.of(r[2], "4s", v[i], b)
		}
		g.put16(v, to)
		g.do("ADD $64, R%d, R%d", from, from)
		g.do("ADD $64, R%d, R%d", to, to)
		g.countdown(left, 16, "BNE", "columns")
		for _, step := range [][2]*register{{ys, y}, {xs, x}, {bs, by}} {
			g.do("ADD R%d, R%d, R%d", step[0], step[1], step[1])
		}
		g.countdown(rows, 1, "BNE", "rows")
	}
}

// decays is of a chunk of 16 tokens.
func decays(f *file) {
	g := f.function("decays", "(y, s *float32, top, a *float64, m *float32, rows int)",
		"sets y[i][j] = exp(top[i] - a[j]) m[j] s[i][j], for rows of 16.")
	g.hasConstants()
	y, s, top, rows := g.param("y"), g.param("s"), g.param("top"), g.param("rows")
	g.at("rows")
	t := g.load(top, 8)
	g.arm("dup 2d d[0]", t, t)
	a, m, left := g.param("a"), g.param("m"), g.address()
	g.do("MOVD $16, R%d", left)
	g.at("columns")
	var whole, part [2]*register
	for i := range whole {
		x := g.of("fmul", "2d", g.of("fsub", "2d", t, g.load(a, 16)), g.c64(math.Log2E))
		x = g.between("2d", x, g.c64(-152), g.c64(130))
		whole[i] = g.new()
		g.arm("frintn 2d 2d", whole[i], x)
		part[i] = g.of("fsub", "2d", x, whole[i])
	}
	k := g.round(whole[0], whole[1])
	minus := g.new()
	g.arm("fneg 4s 4s", minus, k)
	p := polynomial(g, "4s", g.c, g.round(part[0], part[1]), common.Exp2)
	p = g.scale(p, minus, g.of("fadd", "4s", k, g.c(rounding)))
	p = g.of("fmul", "4s", p, g.load(m, 16))
	p = g.of("fmul", "4s", p, g.load(s, 16))
	g.put(p, y, 16)
	g.countdown(left, 4, "BNE", "columns")
	g.countdown(rows, 1, "BNE", "rows")
}

// softmax is of a block of scores, after blocks before it.
func softmax(f *file) {
	g := f.function("softmax", "(s *float32, n int, scale float32, run *float32)",
		"makes n scores, at least one, exp(scale·s - top) where top is the largest of them and of run[0], adds them to run[1] exp(run[0] - top), puts top into run[0], and that decay into run[2].")
	g.hasConstants()
	s, n, run, scale := g.param("s"), g.param("n"), g.param("run"), g.param("scale")
	old := g.all(g.peek(run, 4))
	most := g.copy(old)
	each := func(body func(at *register, lanes int)) {
		at, left := g.rows(s, nil, 1)[0], g.rows(n, nil, 1)[0]
		for _, lanes := range []int{4, 1} {
			g.loop(left, lanes, func() { body(at, lanes) })
		}
	}
	each(func(at *register, lanes int) {
		v := g.peek(at, 4*lanes)
		if lanes == 1 {
			v = g.all(v)
		}
		v = g.of("fmul", "4s", v, scale)
		g.into("fmax", "4s", most, most, v)
		g.put(v, at, 4*lanes)
	})
	top := g.new()
	g.arm("fmaxv s 4s", top, most)
	g.do("FMOVS F%d, (R%d)", top, run)
	top = g.all(top)
	sum := g.zero()
	each(func(at *register, lanes int) {
		v := g.peek(at, 4*lanes)
		p := g.exp(g.of("fsub", "4s", v, top))
		if lanes == 1 {
			p = g.only(p)
		}
		g.into("fadd", "4s", sum, sum, p)
		g.put(p, at, 4*lanes)
	})
	fade, before, total := g.exp(g.of("fsub", "4s", old, top)), g.new(), g.across(sum)
	g.do("FMOVS 4(R%d), F%d", run, before)
	g.fma("4s", total, fade, before)
	g.do("FMOVS F%d, 4(R%d)", total, run)
	g.do("FMOVS F%d, 8(R%d)", fade, run)
}

// recurrence is of one token, four rows of the state at a time.
func recurrence(f *file) {
	g := f.function("recur", "(h *float32, b, c, x, y *float32, rows, n int, dt, decay float32)",
		"takes the state of a head past a token: h[p] = decay h[p] + dt x[p] b, y[p] = h[p]·c, for rows of n, at least 1.")
	h, x, y, rows := g.param("h"), g.param("x"), g.param("y"), g.param("rows")
	size, decay, dt := g.stride("n", 4), g.param("decay"), g.param("dt")
	for _, count := range []int{4, 1} {
		g.loop(rows, count, func() {
			line, b, c, left := g.rows(h, size, count), g.param("b"), g.param("c"), g.param("n")
			var weight, sums []*register
			for range count {
				weight = append(weight, g.of("fmul", "4s", g.all(g.load(x, 4)), dt))
				sums = append(sums, g.zero())
			}
			for _, lanes := range []int{4, 1} {
				g.loop(left, lanes, func() {
					bv, cv := g.load(b, 4*lanes), g.load(c, 4*lanes)
					for r, at := range line {
						old := g.peek(at, 4*lanes)
						v := g.of("fmul", "4s", bv, weight[r])
						g.fma("4s", v, old, decay)
						if lanes == 1 {
							v = g.only(v)
						}
						g.put(v, at, 4*lanes)
						g.fma("4s", sums[r], v, cv)
					}
				})
			}
			for r := range count {
				g.put(g.across(sums[r]), y, 4)
			}
			g.do("MOVD R%d, R%d", line[count-1], h)
		})
	}
}
