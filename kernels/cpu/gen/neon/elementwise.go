package main

import (
	"fmt"
	"math"
)

// lanewise is a function of the elements at one place of up to three rows, and of two numbers.
type lanewise struct {
	name, doc     string
	rows, numbers int
	double        bool // the numbers are in float64
	value         func(g *neon, x, s []*register) *register
}

var lanewises = []lanewise{
	{"add", "a + b", 2, 0, false, func(g *neon, x, s []*register) *register { return g.of("fadd", "4s", x[0], x[1]) }},
	{"mul", "a · b", 2, 0, false, func(g *neon, x, s []*register) *register { return g.of("fmul", "4s", x[0], x[1]) }},
	{"times", "a · p", 1, 1, false, func(g *neon, x, s []*register) *register { return g.of("fmul", "4s", x[0], s[0]) }},
	{"addMul", "a + b · c, rounded twice", 3, 0, false, func(g *neon, x, s []*register) *register {
		return g.of("fadd", "4s", x[0], g.of("fmul", "4s", x[1], x[2]))
	}},
	{"addTimes", "a + b · p, rounded twice", 2, 1, false, func(g *neon, x, s []*register) *register {
		return g.of("fadd", "4s", x[0], g.of("fmul", "4s", x[1], s[0]))
	}},
	{"relu", "max(a, 0)", 1, 0, false, func(g *neon, x, s []*register) *register { return g.of("fmax", "4s", x[0], g.zero()) }},
	{"relu2", "max(a, 0)²", 1, 0, false, func(g *neon, x, s []*register) *register {
		y := g.of("fmax", "4s", x[0], g.zero())
		return g.of("fmul", "4s", y, y)
	}},
	{"clamp", "a, but at least p and at most q", 1, 2, false, func(g *neon, x, s []*register) *register { return g.between("4s", x[0], s[0], s[1]) }},

	{"norm", "a · p, rounded once", 1, 1, true, func(g *neon, x, s []*register) *register {
		return g.each(x[0], func(_ int, v *register) *register { return g.of("fmul", "2d", v, s[0]) })
	}},
	{"weigh", "b · a · p, rounded once", 2, 1, true, func(g *neon, x, s []*register) *register {
		return g.each(x[0], func(half int, v *register) *register {
			return g.of("fmul", "2d", g.of("fmul", "2d", g.double(x[1], half), v), s[0])
		})
	}},
	{"gelu", "a Φ(a)", 1, 0, true, func(g *neon, x, s []*register) *register { return g.map64(x[0], g.gelu64) }},
	{"geluTanh", "a Φ(a), by the tanh approximation", 1, 0, true, func(g *neon, x, s []*register) *register { return g.map64(x[0], g.geluTanh64) }},
	{"silu", "a / (1 + exp(-a))", 1, 0, true, func(g *neon, x, s []*register) *register { return g.map64(x[0], g.silu64) }},
	{"siluMul", "silu(a) · b, rounded twice", 2, 0, true, func(g *neon, x, s []*register) *register {
		return g.of("fmul", "4s", g.map64(x[0], g.silu64), x[1])
	}},
	{"addSilu", "silu(a + b), rounded twice", 2, 0, true, func(g *neon, x, s []*register) *register {
		return g.map64(g.of("fadd", "4s", x[0], x[1]), g.silu64)
	}},
	{"softplus", "log(1 + exp(a))", 1, 0, true, func(g *neon, x, s []*register) *register { return g.map64(x[0], g.softplus64) }},
	{"addSoftplus", "softplus(a + b), rounded twice", 2, 0, true, func(g *neon, x, s []*register) *register {
		return g.map64(g.of("fadd", "4s", x[0], x[1]), g.softplus64)
	}},
	{"negExp", "-exp(a), at least the lowest f32", 1, 0, true, func(g *neon, x, s []*register) *register {
		return g.map64(x[0], func(v *register) *register {
			y := g.of("fmin", "2d", g.exp64(v), g.c64(math.MaxFloat32))
			g.arm("fneg 2d 2d", y, y)
			return y
		})
	}},
}

// elementwise generates them, with one signature.
func elementwise(f *file) {
	for _, of := range lanewises {
		of.write(f)
	}
}

// write writes whole vectors, four of a cheap function, and then one element after the other, in
// the first lane.
func (of *lanewise) write(f *file) {
	g := f.function(of.name, "(y, a, b, c *float32, n int, p, q float64)", fmt.Sprintf("is y = %s, for n elements.", of.doc))
	g.hasConstants()
	y, n := g.param("y"), g.param("n")
	var rows, numbers []*register
	for k := range of.rows {
		rows = append(rows, g.param([]string{"a", "b", "c"}[k]))
	}
	for k := range of.numbers {
		s := g.param([]string{"p", "q"}[k])
		if !of.double {
			s = g.round(s, s)
		}
		numbers = append(numbers, s)
	}
	step := func(lanes int) func() {
		return func() {
			var x []*register
			for _, at := range rows {
				x = append(x, g.load(at, 4*lanes))
			}
			g.put(of.value(g, x, numbers), y, 4*lanes)
		}
	}
	if !of.double {
		g.loop(n, 16, func() {
			for range 4 {
				step(4)()
			}
		})
	}
	g.loop(n, 4, step(4))
	g.loop(n, 1, step(1))
}

// each computes a function in float64, of a half of a vector after the other.
func (g *neon) each(x *register, value func(half int, v *register) *register) *register {
	low := value(0, g.double(x, 0))
	return g.round(low, value(1, g.double(x, 1)))
}

// map64 is each for a function of one operand.
func (g *neon) map64(x *register, value func(v *register) *register) *register {
	return g.each(x, func(_ int, v *register) *register { return value(v) })
}
