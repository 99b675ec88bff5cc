package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// short generates the products of 4 rows of weights with some rows of x whose sums
// are in float64. Lane i of a vector sums the elements i, i + lanes, …, halves are added
// until 4 lanes are left, pairs of those, and then what is left of k, one by one. Several
// rows of x are packed as float64: widening costs as much as multiplying. Many go past panels with
// rows of weights in the lanes, which sum a lane after the other, in the same order.
func short(c *build.Context) {
	for _, set := range []struct {
		isa
		tokens []int
	}{{avx2, []int{1, 3}}, {avx512, []int{1, 3, 6}}} {
		lanes := set.lanes / 2
		(&shortSums{vec: newVec(c, set.isa), lanes: lanes}).pack()
		for _, f := range formats {
			for _, n := range set.tokens {
				(&shortSums{vec: newVec(c, set.isa), lanes: lanes, format: f, tokens: n}).write()
			}
		}
		(&shortSums{vec: newVec(c, set.isa), lanes: lanes, tokens: 6}).panel()
	}
}

// pack generates what widens whole vectors of a row of x, and puts them apart.
func (g *shortSums) pack() {
	g.function("packShort", "(to *float64, from *float32, n, apart int)",
		fmt.Sprintf("widens n vectors of %d elements, and writes them apart elements apart.", g.lanes))
	to, from := g.param("to"), g.param("from")
	n, apart := g.param("n"), g.param("apart")
	g.SHLQ(U8(3), apart)
	g.TESTQ(n, n)
	g.JZ(LabelRef("done"))
	g.Label("vectors")
	x := g.new()
	g.VCVTPS2PD(Mem{Base: from}, x)
	g.VMOVUPD(x, Mem{Base: to})
	g.ADDQ(Imm(uint64(4*g.lanes)), from)
	g.ADDQ(apart, to)
	g.DECQ(n)
	g.JNZ(LabelRef("vectors"))
	g.Label("done")
	g.end()
}

// shortSums is the generator of one function.
type shortSums struct {
	*vec
	lanes  int // of float64
	format format
	tokens int

	w [4]Mem // where the rows of weights go on
	x reg.Register
	k reg.Register
}

func (g *shortSums) write() {
	element := "float64"
	if g.tokens == 1 {
		element = "float32"
	}
	name := fmt.Sprintf("short%sx%d", g.format.name, g.tokens)
	doc := []string{fmt.Sprintf("is shortF32x1%s for %d rows of x.", g.set.name, g.tokens)}
	if name == "shortF32x1" {
		doc = []string{"multiplies 4 rows of weights of k elements with 1 of x, with sums in float64: y[t][r] = x[t]·w[r].",
			"Rows are ws and ys elements apart; where ws is 0, only y[t][0] is written. Several rows of x",
			"are packed: a vector of each, and so on, and what fills none an element of each."}
	}
	g.function(name, fmt.Sprintf("(w *%s, ws int, x *%s, y *float32, ys, k int)", g.format.element, element), doc...)
	ws := g.param("ws")
	g.w = g.rows(ws)
	g.x = g.param("x")
	g.k = g.param("k")
	sums := g.reduce(g.vectors())
	g.tail(sums)
	g.store(sums, ws)
	g.end()
}

// rows are where four rows of weights begin; stride, in elements, becomes one in bytes.
func (g *shortSums) rows(stride reg.Register) [4]Mem {
	base := g.param("w")
	g.IMUL3Q(U8(g.format.size), stride, stride)
	return strided(base, stride, g.triple(stride))
}

// advance moves on by n elements.
func (g *shortSums) advance(n int) {
	g.ADDQ(Imm(uint64(n*g.format.size)), g.w[0].Base)
	size := 8 * g.tokens
	if g.tokens == 1 {
		size = 4
	}
	g.ADDQ(U32(n*size), g.x)
}

// narrow is a vector of as many float32.
func (g *shortSums) narrow() vector {
	if g.wide() {
		return g.YMM()
	}
	return g.XMM()
}

// vectors sums what fills vectors: a vector of each row of weights is widened once, for all tokens.
func (g *shortSums) vectors() [][4]vector {
	sums := make([][4]vector, g.tokens)
	for t := range sums {
		for r := range sums[t] {
			sums[t][r] = g.new()
			if g.wide() {
				g.VPXORQ(sums[t][r], sums[t][r], sums[t][r])
			} else {
				g.VXORPD(sums[t][r], sums[t][r], sums[t][r])
			}
		}
	}
	g.SUBQ(U8(g.lanes), g.k)
	g.JLT(LabelRef("narrow"))
	g.Label("vectors")
	var x [6]Op
	for t := range sums {
		x[t] = Mem{Base: g.x, Disp: 8 * g.lanes * t}
	}
	if g.tokens == 1 {
		wide := g.new()
		g.VCVTPS2PD(Mem{Base: g.x}, wide)
		x[0] = wide
	}
	for r := range 4 {
		w := g.widen(g.w[r])
		for t := range sums {
			g.VFMADD231PD(x[t], w, sums[t][r])
		}
	}
	g.advance(g.lanes)
	g.SUBQ(U8(g.lanes), g.k)
	g.JGE(LabelRef("vectors"))
	g.Label("narrow")
	g.ADDQ(U8(g.lanes), g.k)
	return sums
}

// widen loads a vector of weights as float64.
func (g *shortSums) widen(from Mem) vector {
	w, n := g.new(), g.narrow()
	if g.format == f32 {
		g.VCVTPS2PD(from, w)
		return w
	}
	g.vec.widen(g.format, from, n)
	g.VCVTPS2PD(n, w)
	return w
}

// reduce adds the lanes of the sums: a vector for each token, with a lane per row.
func (g *shortSums) reduce(sums [][4]vector) []vector {
	var out []vector
	for _, rows := range sums {
		var four [4]vector
		for r, s := range rows {
			four[r] = s
			if g.wide() {
				four[r] = g.YMM()
				g.VEXTRACTF64X4(U8(1), s, four[r])
				g.VADDPD(four[r], s.AsY(), four[r])
			}
		}
		pairs := func(a, b vector) vector { // a0+a1, b0+b1, a2+a3, b2+b3
			p, q := g.YMM(), g.YMM()
			g.VUNPCKLPD(b, a, p)
			g.VUNPCKHPD(b, a, q)
			g.VADDPD(q, p, p)
			return p
		}
		a, b, lo, hi := pairs(four[0], four[1]), pairs(four[2], four[3]), g.YMM(), g.YMM()
		if g.wide() { // in all of the 32 registers
			g.VSHUFF64X2(U8(0), b, a, lo)
			g.VSHUFF64X2(U8(3), b, a, hi)
		} else {
			g.VPERM2F128(U8(0x20), b, a, lo)
			g.VPERM2F128(U8(0x31), b, a, hi)
		}
		g.VADDPD(hi, lo, lo)
		out = append(out, lo)
	}
	return out
}

// tail adds what does not fill a vector, an element of the four rows at a time.
func (g *shortSums) tail(sums []vector) {
	g.TESTQ(g.k, g.k)
	g.JZ(LabelRef("done"))
	g.Label("tail")
	w := g.column()
	for t, s := range sums {
		wide := g.YMM()
		if g.tokens == 1 {
			x := g.XMM()
			g.VBROADCASTSS(Mem{Base: g.x}, x)
			g.VCVTPS2PD(x, wide)
		} else {
			g.VBROADCASTSD(Mem{Base: g.x, Disp: 8 * t}, wide)
		}
		g.VFMADD231PD(w, wide, s)
	}
	g.advance(1)
	g.DECQ(g.k)
	g.JNZ(LabelRef("tail"))
	g.Label("done")
}

// column loads an element of each row. A bf16 goes to the upper half of its lane.
func (g *shortSums) column() vector {
	w, wide := g.XMM(), g.YMM()
	g.VPXOR(w, w, w)
	for r := range 4 {
		switch g.format {
		case f32:
			g.VINSERTPS(U8(r<<4), g.w[r], w, w)
		case bf16:
			g.VPINSRW(U8(2*r+1), g.w[r], w, w)
		case f16:
			g.VPINSRW(U8(r), g.w[r], w, w)
		}
	}
	if g.format == f16 {
		g.VCVTPH2PS(w, w)
	}
	g.VCVTPS2PD(w, wide)
	return wide
}

// narrowed rounds a vector of float64.
func (g *shortSums) narrowed(v vector) Op {
	if g.wide() {
		g.VCVTPD2PS(v, v.AsY())
		return v.AsY()
	}
	g.VCVTPD2PSY(v, v.AsX())
	return v.AsX()
}

func (g *shortSums) store(sums []vector, ws reg.Register) {
	y, ys := g.param("y"), g.stride("ys")
	for _, s := range sums {
		g.VCVTPD2PSY(s, s.AsX())
	}
	g.TESTQ(ws, ws)
	g.JZ(LabelRef("single"))
	for _, s := range sums {
		g.VMOVUPS(s.AsX(), Mem{Base: y})
		g.ADDQ(ys, y)
	}
	g.JMP(LabelRef("stored"))
	g.Label("single")
	for _, s := range sums {
		g.VMOVSS(s.AsX(), Mem{Base: y})
		g.ADDQ(ys, y)
	}
	g.Label("stored")
}

// panel generates the products of groups of two vectors of rows with packed rows of x. Lanes are
// summed in turn, in an order in which sums of 1, 2, 4, … of them are added as reduce does: a sum
// waits in memory for the next of its level.
func (g *shortSums) panel() {
	rows, depth := 2*g.lanes, bits.Len(uint(g.lanes))-1
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
	ys, vectors, at := g.stride("ys"), g.GP64(), g.GP64()
	g.x = g.GP64()
	sums := make([][2]vector, g.tokens)
	each := func(f func(i int, s vector)) {
		for t := range sums {
			f(2*t, sums[t][0])
			f(2*t+1, sums[t][1])
		}
	}
	for t := range sums {
		sums[t] = [2]vector{g.new(), g.new()}
	}
	levels := g.AllocLocal(depth * 2 * g.tokens * g.bytes())
	level := func(l, i int) Mem { return levels.Offset((2*g.tokens*l + i) * g.bytes()) }
	products := func(label string, count reg.Register, step int) {
		g.TESTQ(count, count)
		g.JZ(LabelRef(label + "_done"))
		g.Label(label)
		a, b := g.new(), g.new()
		g.VCVTPS2PD(Mem{Base: at}, a)
		g.VCVTPS2PD(Mem{Base: at, Disp: 4 * g.lanes}, b)
		for t, s := range sums {
			x := g.new()
			g.VBROADCASTSD(Mem{Base: g.x, Disp: 8 * t}, x)
			g.VFMADD231PD(a, x, s[0])
			g.VFMADD231PD(b, x, s[1])
		}
		g.ADDQ(U32(4*rows*step), at)
		g.ADDQ(U32(8*g.tokens*step), g.x)
		g.DECQ(count)
		g.JNZ(LabelRef(label))
		g.Label(label + "_done")
	}
	g.Label("group")
	for turn := range g.lanes {
		lane := turn
		if g.wide() { // halves are added first
			lane = turn/2 + turn%2*g.lanes/2
		}
		each(func(_ int, s vector) { g.clear(s) })
		g.LEAQ(Mem{Base: w, Disp: 4 * rows * lane}, at)
		g.MOVQ(g.memory("x"), g.x)
		g.ADDQ(U32(8*g.tokens*lane), g.x)
		g.MOVQ(k, vectors)
		g.SHRQ(U8(depth), vectors)
		products(fmt.Sprintf("lane%d", lane), vectors, g.lanes)
		each(func(i int, s vector) {
			l := 0
			for ; turn>>l&1 == 1; l++ {
				g.VADDPD(level(l, i), s, s)
			}
			if l < depth {
				g.VMOVUPD(s, level(l, i))
			}
		})
	}
	g.SUBQ(U32(4*rows*(g.lanes-1)), at)
	g.SUBQ(U32(8*g.tokens*(g.lanes-1)), g.x)
	g.MOVQ(k, vectors)
	g.ANDQ(U8(g.lanes-1), vectors)
	products("rest", vectors, 1)
	g.MOVQ(at, w)
	g.MOVQ(y, at)
	for _, s := range sums {
		for half, v := range s {
			g.VMOVUPS(g.narrowed(v), Mem{Base: at, Disp: 4 * g.lanes * half})
		}
		g.ADDQ(ys, at)
	}
	g.ADDQ(U8(4*rows), y)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}
