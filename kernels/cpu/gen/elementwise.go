package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// lanewise is a function of the elements at one place of up to three rows, and of two
// numbers.
type lanewise struct {
	name, doc    string
	rows, scalar int
	value        func(g *vec, x, s []vector) vector
}

var lanewises = []lanewise{
	{"add", "a + b", 2, 0, func(g *vec, x, s []vector) vector { return g.add(x[0], x[1]) }},
	{"mul", "a · b", 2, 0, func(g *vec, x, s []vector) vector { return g.mul(x[0], x[1]) }},
	{"times", "a · p", 1, 1, func(g *vec, x, s []vector) vector { return g.mul(x[0], s[0]) }},
	{"addMul", "a + b · c, rounded twice", 3, 0, func(g *vec, x, s []vector) vector { return g.add(x[0], g.mul(x[1], x[2])) }},
	{"addTimes", "a + b · p, rounded twice", 2, 1, func(g *vec, x, s []vector) vector { return g.add(x[0], g.mul(x[1], s[0])) }},
	{"weigh", "b · (a · p)", 2, 1, func(g *vec, x, s []vector) vector { return g.mul(x[1], g.mul(x[0], s[0])) }},
	{"relu", "max(a, 0)", 1, 0, func(g *vec, x, s []vector) vector {
		return g.add(g.c(0), g.atLeast(g.c(0), x[0])) // of -0 that is 0
	}},
	{"clamp", "a, but at least p and at most q", 1, 2, func(g *vec, x, s []vector) vector { return g.atMost(s[1], g.atLeast(s[0], x[0])) }},
	{"silu", "a / (1 + exp(-a))", 1, 0, func(g *vec, x, s []vector) vector { return g.silu(x[0]) }},
	{"siluMul", "silu(a) · b", 2, 0, func(g *vec, x, s []vector) vector { return g.mul(x[1], g.silu(x[0])) }},
	{"addSilu", "silu(a + b)", 2, 0, func(g *vec, x, s []vector) vector { return g.silu(g.add(x[0], x[1])) }},
	{"softplus", "log(1 + exp(a))", 1, 0, func(g *vec, x, s []vector) vector { return g.softplus(x[0]) }},
	{"addSoftplus", "softplus(a + b)", 2, 0, func(g *vec, x, s []vector) vector { return g.softplus(g.add(x[0], x[1])) }},
	{"negExp", "-exp(a), at least the lowest f32", 1, 0, func(g *vec, x, s []vector) vector {
		return g.minus(g.atMost(g.bits(mostBits), g.exp(x[0])))
	}},
}

const (
	chains = 2  // vectors at once
	held   = 14 // constants in registers, where there are 32
)

// elementwise generates them, with one signature.
func elementwise(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		for _, f := range lanewises {
			f.write(newVec(c, set))
		}
	}
}

func (f *lanewise) write(g *vec) {
	g.function(f.name, "y, a, b, c *float32, n int, p, q float32", fmt.Sprintf("is y = %s, for n elements.", f.doc))
	var rows [3]Mem
	i, n := g.GP64(), g.param("n")
	g.XORQ(i, i)
	at := func(name string) Mem { return Mem{Base: g.param(name), Index: i, Scale: 4} }
	y := at("y")
	for k := range f.rows {
		rows[k] = at([]string{"a", "b", "c"}[k])
	}
	var scalars []vector
	for k := range f.scalar {
		s := g.new()
		g.VBROADCASTSS(g.memory([]string{"p", "q"}[k]), s)
		scalars = append(scalars, s)
	}
	g.hold(held, func(g *vec) {
		f.value(g, []vector{g.new(), g.new(), g.new()}, []vector{g.new(), g.new()})
	})
	step := func(t *tail, at int) {
		var x []vector
		for k := range f.rows {
			x = append(x, g.load(rows[k].Offset(at*g.bytes()), t))
		}
		g.store(f.value(g, x, scalars), y.Offset(at*g.bytes()), t)
	}
	for _, vectors := range []int{chains, 1} {
		part, all := g.label("part"), g.label("vectors")
		g.SUBQ(U8(vectors*g.set.lanes), n)
		g.JLT(LabelRef(part))
		g.Label(all)
		g.together(vectors, func(at int) { step(nil, at) })
		g.ADDQ(U8(vectors*g.set.lanes), i)
		g.SUBQ(U8(vectors*g.set.lanes), n)
		g.JGE(LabelRef(all))
		g.Label(part)
		g.ADDQ(U8(vectors*g.set.lanes), n)
	}
	g.JZ(LabelRef("done"))
	t := g.tail(n)
	step(&t, 0)
	g.Label("done")
	g.end()
}

func (g *vec) minus(x vector) vector {
	v := g.new()
	g.VXORPS(g.bits(1<<31), x, v)
	return v
}
