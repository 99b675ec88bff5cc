package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanewise is a function of the elements at one place of up to three rows, and of two numbers.
type lanewise struct {
	name, doc     string
	rows, numbers int
	double        bool // in float64: the numbers are so, and halves of a vector are written in turns
	value         func(g *vec, x, s []vector) vector
}

var lanewises = []lanewise{
	{"add", "a + b", 2, 0, false, func(g *vec, x, s []vector) vector { return g.add(x[0], x[1]) }},
	{"mul", "a · b", 2, 0, false, func(g *vec, x, s []vector) vector { return g.mul(x[0], x[1]) }},
	{"times", "a · p", 1, 1, false, func(g *vec, x, s []vector) vector { return g.mul(x[0], s[0]) }},
	{"addMul", "a + b · c, rounded twice", 3, 0, false, func(g *vec, x, s []vector) vector { return g.add(x[0], g.mul(x[1], x[2])) }},
	{"addTimes", "a + b · p, rounded twice", 2, 1, false, func(g *vec, x, s []vector) vector { return g.add(x[0], g.mul(x[1], s[0])) }},
	{"relu", "max(a, 0)", 1, 0, false, func(g *vec, x, s []vector) vector {
		return g.add(g.c(0), g.atLeast(g.c(0), x[0])) // of -0 that is 0
	}},
	{"relu2", "max(a, 0)²", 1, 0, false, func(g *vec, x, s []vector) vector {
		y := g.atLeast(g.c(0), x[0])
		return g.mul(y, y)
	}},
	{"clamp", "a, but at least p and at most q", 1, 2, false, func(g *vec, x, s []vector) vector { return g.atMost(s[1], g.atLeast(s[0], x[0])) }},

	{"norm", "a · p, rounded once", 1, 1, true, func(g *vec, x, s []vector) vector {
		return g.each(x[:1], func(d doubles, x []vector) vector { return d.mul(s[0], x[0]) })
	}},
	{"weigh", "b · a · p, rounded once", 2, 1, true, func(g *vec, x, s []vector) vector {
		return g.each(x[:2], func(d doubles, x []vector) vector { return d.mul(s[0], d.mul(x[0], x[1])) })
	}},
	{"gelu", "a Φ(a)", 1, 0, true, func(g *vec, x, s []vector) vector { return g.of(x[0], doubles.gelu) }},
	{"geluTanh", "a Φ(a), by the tanh approximation", 1, 0, true, func(g *vec, x, s []vector) vector { return g.of(x[0], doubles.geluTanh) }},
	{"silu", "a / (1 + exp(-a))", 1, 0, true, func(g *vec, x, s []vector) vector { return g.of(x[0], doubles.silu) }},
	{"siluMul", "silu(a) · b, rounded twice", 2, 0, true, func(g *vec, x, s []vector) vector { return g.mul(x[1], g.of(x[0], doubles.silu)) }},
	{"addSilu", "silu(a + b), rounded twice", 2, 0, true, func(g *vec, x, s []vector) vector { return g.of(g.add(x[0], x[1]), doubles.silu) }},
	{"softplus", "log(1 + exp(a))", 1, 0, true, func(g *vec, x, s []vector) vector { return g.of(x[0], doubles.softplus) }},
	{"addSoftplus", "softplus(a + b), rounded twice", 2, 0, true, func(g *vec, x, s []vector) vector {
		return g.of(g.add(x[0], x[1]), doubles.softplus)
	}},
	{"negExp", "-exp(a), at least the lowest f32", 1, 0, true, func(g *vec, x, s []vector) vector {
		return g.minus(g.atMost(g.bits(mostBits), g.of(x[0], doubles.exp)))
	}},
}

// held is how many constants are in registers, on machines with 32.
const held = 10

// elementwise generates them, with one signature.
func elementwise(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		for _, f := range lanewises {
			f.write(newVec(c, set))
		}
	}
}

func (f *lanewise) write(g *vec) {
	g.function(f.name, "(y, a, b, c *float32, n int, p, q float64)", fmt.Sprintf("is y = %s, for n elements.", f.doc))
	var rows [3]Mem
	i, n := g.GP64(), g.param("n")
	g.XORQ(i, i)
	at := func(name string) Mem { return Mem{Base: g.param(name), Index: i, Scale: 4} }
	y := at("y")
	for k := range f.rows {
		rows[k] = at([]string{"a", "b", "c"}[k])
	}
	var scalars []vector
	for k := range f.numbers {
		s, from := g.new(), g.memory([]string{"p", "q"}[k])
		if f.double {
			g.VBROADCASTSD(from, s)
		} else {
			one := g.XMM()
			g.VXORPS(one, one, one)
			g.VCVTSD2SS(from, one, one)
			g.VBROADCASTSS(one, s)
		}
		scalars = append(scalars, s)
	}
	g.tight = f.double && !g.wide()
	g.hold(held, func(g *vec) {
		f.value(g, []vector{g.new(), g.new(), g.new()}, []vector{g.new(), g.new()})
	})
	if g.tight {
		f.inOne(g, rows[:f.rows], y, i, n, scalars)
		return
	}
	step := func(t *tail, at int) {
		var x []vector
		for k := range f.rows {
			x = append(x, g.load(rows[k].Offset(at*g.bytes()), t))
		}
		g.store(f.value(g, x, scalars), y.Offset(at*g.bytes()), t)
	}
	chains := []int{2, 1}
	if f.double {
		chains = chains[1:]
	}
	for _, vectors := range chains {
		g.loop("vectors", n, vectors*g.set.lanes, func() {
			g.together(vectors, func(at int) { step(nil, at) })
			g.ADDQ(U8(vectors*g.set.lanes), i)
		})
	}
	g.JZ(LabelRef("done"))
	t := g.tail(n)
	step(&t, 0)
	g.Label("done")
	g.end()
}

// inOne writes the loop of a long function: its code stands once, between two ways to load and two
// to store, of which those with a tail end it.
func (f *lanewise) inOne(g *vec, rows []Mem, y Mem, i, n reg.Register, scalars []vector) {
	lanes := U8(g.set.lanes)
	x := make([]vector, len(rows))
	g.TESTQ(n, n)
	g.JZ(LabelRef("done"))
	g.Label("next")
	g.CMPQ(n, lanes)
	g.JGE(LabelRef("whole"))
	some := g.tail(n)
	for k := range x {
		x[k] = g.load(rows[k], &some)
	}
	g.JMP(LabelRef("loaded"))
	g.Label("whole")
	for k := range x {
		g.VMOVUPS(rows[k], x[k])
	}
	g.Label("loaded")
	value := f.value(g, x, scalars)
	g.CMPQ(n, lanes)
	g.JLT(LabelRef("part"))
	g.store(value, y, nil)
	g.ADDQ(lanes, i)
	g.SUBQ(lanes, n)
	g.JNZ(LabelRef("next"))
	g.JMP(LabelRef("done"))
	g.Label("part")
	some = g.tail(n)
	g.store(value, y, &some)
	g.Label("done")
	g.end()
}

func (g *vec) minus(x vector) vector {
	v := g.new()
	g.VXORPS(g.bits(1<<31), x, v)
	return v
}
