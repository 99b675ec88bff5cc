package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// shortPanel is the generator of products of packed rows of x with groups of two vectors of rows of
// weights, which are in the lanes. Its sums are those of short to the last bit: lanes of short are
// summed in turn, in an order in which sums of 1, 2, 4, … of them are added as reduce does. A sum
// waits in memory for the next of its level.
type shortPanel struct {
	*product
	at, x  reg.Register // where weights and rows of x go on
	sums   []vector     // two for each row of x
	levels Mem
}

// depth is how many levels there are.
func (g *shortPanel) depth() int { return bits.Len(uint(g.lanes())) - 1 }

func (g *shortPanel) write() {
	rows := 2 * g.lanes()
	doc := []string{fmt.Sprintf("is shortPanel%s for groups of %d.", avx2.name, rows)}
	if g.set.name == avx2.name {
		doc = []string{
			fmt.Sprintf("is shortF32x1%s for %d rows of x", g.set.name, g.tokens),
			fmt.Sprintf("and groups of %d of w, which have an element of each row, and so on.", rows),
		}
	}
	g.function("shortPanel", "(w *float32, x *float64, y *float32, ys, k, groups int)", doc...)
	g.Attributes(attr.Attribute(0)) // levels of sums need a stack
	w, y, k := g.param("w"), g.param("y"), g.param("k")
	ys, count := g.stride("ys"), g.GP64()
	g.at, g.x = g.GP64(), g.GP64()
	for range 2 * g.tokens {
		g.sums = append(g.sums, g.new())
	}
	g.levels = g.AllocLocal(g.depth() * len(g.sums) * g.bytes())
	g.Label("group")
	for turn := range g.lanes() {
		lane := turn
		if g.wide() { // halves are added first
			lane = turn/2 + turn%2*g.lanes()/2
		}
		for _, s := range g.sums {
			g.clear(s)
		}
		g.LEAQ(Mem{Base: w, Disp: 4 * rows * lane}, g.at)
		g.MOVQ(g.memory("x"), g.x)
		g.ADDQ(U32(8*g.tokens*lane), g.x)
		g.MOVQ(k, count)
		g.SHRQ(U8(g.depth()), count)
		g.multiply(fmt.Sprintf("lane%d", lane), count, g.lanes())
		g.wait(turn)
	}
	g.SUBQ(U32(4*rows*(g.lanes()-1)), g.at)
	g.SUBQ(U32(8*g.tokens*(g.lanes()-1)), g.x)
	g.MOVQ(k, count)
	g.ANDQ(U8(g.lanes()-1), count)
	g.multiply("rest", count, 1)
	g.MOVQ(g.at, w)
	g.put(y, ys)
	g.ADDQ(U8(4*rows), y)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}

// multiply adds products of a number of elements, which are a step apart.
func (g *shortPanel) multiply(label string, count reg.Register, step int) {
	g.TESTQ(count, count)
	g.JZ(LabelRef(label + "_done"))
	g.Label(label)
	var w [2]vector
	for half := range w {
		w[half] = g.loaded(f32, Mem{Base: g.at, Disp: 4 * g.lanes() * half}, nil)
	}
	for t := range g.tokens {
		x := g.new()
		g.VBROADCASTSD(Mem{Base: g.x, Disp: 8 * t}, x)
		for half := range w {
			g.VFMADD231PD(w[half], x, g.sums[2*t+half])
		}
	}
	g.ADDQ(U32(8*g.lanes()*step), g.at)
	g.ADDQ(U32(8*g.tokens*step), g.x)
	g.DECQ(count)
	g.JNZ(LabelRef(label))
	g.Label(label + "_done")
}

// wait adds to a turn's sums those that wait for them, and lets them wait, but for the last.
func (g *shortPanel) wait(turn int) {
	for i, s := range g.sums {
		at := func(level int) Mem { return g.levels.Offset((level*len(g.sums) + i) * g.bytes()) }
		level := bits.TrailingZeros(^uint(turn))
		for l := range level {
			g.VADDPD(at(l), s, s)
		}
		if level < g.depth() {
			g.VMOVUPD(s, at(level))
		}
	}
}

// put rounds the sums.
func (g *shortPanel) put(y, ys reg.Register) {
	at := g.at
	g.MOVQ(y, at)
	for i, s := range g.sums {
		g.VMOVUPS(g.rounded(s), Mem{Base: at, Disp: 4 * g.lanes() * (i % 2)})
		if i%2 == 1 {
			g.ADDQ(ys, at)
		}
	}
}
