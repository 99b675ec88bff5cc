package main

import (
	"math"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scan generates the recurrence of selective_scan, with channels in the lanes, whose output is the
// sum over their states in order; and that of a single token's states, as they lie.
func scan(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		(&scanner{vec: newVec(c, set)}).write()
		(&scanner{vec: newVec(c, set)}).step()
	}
}

type scanner struct {
	*vec
	y, u, dt, a, h     reg.Register // of a vector of channels
	apart              reg.Register // bytes between the rows of a and of h
	rowB, rowC, states reg.Register // where the rows of B and C end, and bytes of them, below 0
}

// biased rounds a number to an integer when it is added; the low bits then hold that, with the bias
// of an exponent.
const biased = 3<<22 + 127

func (g *scanner) write() {
	g.function("scan", "(y, u, dt, a, h, b, c *float32, tokens, channels, n, ys, us, dts, hs, bs, cs int)",
		"runs h = exp(dt a) h + dt u b, y = Σ h c over n states of channels, for tokens whose rows are ys,",
		"us, dts, bs and cs elements apart. Rows of a and h, hs elements apart, have a state of all channels.")
	g.hold()
	g.apart, g.states = g.stride("hs"), g.stride("n")
	g.NEGQ(g.states)
	left, rows := g.GP64(), []string{"y", "u", "dt", "a", "h"}
	g.Label("token")
	for _, row := range []string{"u", "dt", "y"} {
		g.fetch(row)
	}
	g.y, g.u, g.dt, g.a, g.h = g.param("y"), g.param("u"), g.param("dt"), g.param("a"), g.param("h")
	g.rowB, g.rowC = g.param("b"), g.param("c")
	g.SUBQ(g.states, g.rowB)
	g.SUBQ(g.states, g.rowC)
	g.MOVQ(g.memory("channels"), left)
	g.loop("channels", left, g.set.lanes, func() {
		g.channels(nil)
		for _, p := range []reg.Register{g.y, g.u, g.dt, g.a, g.h} {
			g.ADDQ(U8(g.bytes()), p)
		}
	})
	g.JZ(LabelRef("allchannels"))
	t := g.tail(left)
	g.channels(&t)
	g.Label("allchannels")
	for _, row := range append(rows[:3], "b", "c") {
		g.ADDQ(g.stride(row+"s"), g.memory(row))
	}
	g.DECQ(g.memory("tokens"))
	g.JNZ(LabelRef("token"))
	g.end()
}

// scanAhead is how many tokens ahead a row is fetched, and rowBytes how much of it.
const scanAhead, rowBytes = 4, 256

// fetch fetches a block's channels of a row some tokens ahead.
func (g *scanner) fetch(row string) {
	at := g.ahead(g.memory(row), g.stride(row+"s"), scanAhead)
	for line := 0; line < rowBytes; line += 64 {
		g.PREFETCHT0(Mem{Base: at, Disp: line})
	}
}

// hold keeps constants of exp2 in registers.
func (g *scanner) hold() {
	for _, v := range append([]float32{-127, 128, biased}, exp2Series[:len(exp2Series)-1]...) {
		k := constant{uint64(math.Float32bits(v)), 4}
		g.held[k] = g.broadcast(k)
	}
}

// step generates what takes states past a token, with those of a channel in the lanes.
func (g *scanner) step() {
	g.function("scanStep", "(h, u, dt, a, b *float32, channels, n, as int)",
		"is h = exp(dt a) h + dt u b for n states of each channel; rows of a are as elements apart.")
	g.hold()
	u, dt, left := g.param("u"), g.param("dt"), g.param("channels")
	g.h, g.a, g.apart = g.param("h"), g.param("a"), g.stride("as")
	states, rowB, n := g.columns("n"), g.param("b"), g.stride("n")
	g.Label("channel")
	in, factor := g.new(), g.new()
	g.VBROADCASTSS(Mem{Base: dt}, in)
	log := g.mul(g.c(math.Log2E), in)
	g.VBROADCASTSS(Mem{Base: u}, factor)
	g.VMULPS(factor, in, in)
	states.each(func(at reg.Register, t *tail) {
		a, h := Mem{Base: g.a, Index: at, Scale: 1}, Mem{Base: g.h, Index: at, Scale: 1}
		decay := g.exp2(g.mul(g.operand(a, t), log))
		state := g.mul(in, g.load(Mem{Base: rowB, Index: at, Scale: 1}, t))
		g.VFMADD231PS(g.operand(h, t), decay, state)
		g.store(state, h, t)
	})
	g.ADDQ(n, g.h)
	g.ADDQ(g.apart, g.a)
	g.ADDQ(U8(4), u)
	g.ADDQ(U8(4), dt)
	g.DECQ(left)
	g.JNZ(LabelRef("channel"))
	g.end()
}

// channels takes a vector of channels past a token.
func (g *scanner) channels(t *tail) {
	in := g.load(Mem{Base: g.dt}, t)
	log := g.mul(g.c(math.Log2E), in)
	g.VMULPS(g.load(Mem{Base: g.u}, t), in, in)
	sum, row, state := g.zero(), g.GP64(), g.GP64()
	g.XORQ(row, row)
	g.MOVQ(g.states, state)
	next := g.label("states")
	g.Label(next)
	a, h := Mem{Base: g.a, Index: row, Scale: 1}, Mem{Base: g.h, Index: row, Scale: 1}
	decay := g.exp2(g.mul(g.operand(a, t), log))
	b, c := g.new(), g.new()
	g.VBROADCASTSS(Mem{Base: g.rowB, Index: state, Scale: 1}, b)
	g.VMULPS(in, b, b)
	g.VFMADD231PS(g.operand(h, t), decay, b)
	g.store(b, h, t)
	g.VBROADCASTSS(Mem{Base: g.rowC, Index: state, Scale: 1}, c)
	g.VFMADD231PS(b, c, sum)
	g.ADDQ(g.apart, row)
	g.ADDQ(U8(4), state)
	g.JNZ(LabelRef(next))
	g.store(sum, Mem{Base: g.y}, t)
}

// exp2 is 2^x: 0 below -127, infinite from 127.5 on.
func (g *scanner) exp2(x vector) vector {
	g.VMAXPS(x, g.c(-127).(vector), x)
	g.VMINPS(x, g.c(128).(vector), x)
	t := g.add(g.c(biased), x)
	g.VSUBPS(g.sub(g.c(biased), t), x, x)
	p := g.polynomial(x, exp2Series...)
	g.VPSLLD(U8(23), t, t)
	return g.mul(t, p)
}
