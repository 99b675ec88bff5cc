package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panels generates products of many tokens, with rows of weights in the lanes, whose sums
// are those of gemm to the last bit: element k of a sum belongs to the lane k mod lanes of
// gemm, and here lanes are summed one after the other, and then added in gemm's order.
//
// Lane i and lane i + lanes/2 are a pair. Pairs are in the order that their sums are added in: pair
// p has the lane that has p's bits in reverse. A panel has for each pair, and each vector of k, the
// rows' elements in its two lanes; packed tokens have those of four tokens.
func panels(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := &panel{newVec(c, set)}
		g.packRows()
		g.packTokens()
		for vectors := 1; vectors <= 3; vectors++ {
			g.tile(vectors)
		}
		g.drain()
	}
}

// group is how many tokens are packed together.
const group = 4

type panel struct{ *vec }

// pair is that of a lane.
func (g *panel) pair(lane int) int {
	pairs := uint(g.set.lanes / 2)
	n := bits.Len(pairs) - 1
	return int(bits.Reverse(uint(lane)%pairs) >> (bits.UintSize - n))
}

// places are where pairs lie, from an address on.
type places struct {
	even, odd     reg.Register // where pairs 0 and 1 are
	one, two, six reg.Register
}

func (g *panel) places(to, apart reg.Register) places {
	p := places{even: to, odd: g.GP64(), one: apart, two: g.GP64(), six: g.GP64()}
	g.LEAQ(Mem{Base: to, Index: apart, Scale: 1}, p.odd)
	g.LEAQ(Mem{Base: apart, Index: apart, Scale: 1}, p.two)
	g.LEAQ(Mem{Base: p.two, Index: p.two, Scale: 2}, p.six)
	return p
}

func (p *places) at(pair int) Mem {
	base := p.even
	if pair%2 == 1 {
		base = p.odd
	}
	switch pair / 2 {
	case 0:
		return Mem{Base: base}
	case 1:
		return Mem{Base: base, Index: p.two, Scale: 1}
	case 2:
		return Mem{Base: base, Index: p.two, Scale: 2}
	}
	return Mem{Base: base, Index: p.six, Scale: 1}
}

func (p *places) advance(g *panel, by Op) {
	g.ADDQ(by, p.even)
	g.ADDQ(by, p.odd)
}

// packRows writes a vector of rows of a panel.
func (g *panel) packRows() {
	g.function("packRows", "(to, from *float32, ws, steps, apart, width int)",
		fmt.Sprintf("writes %d rows of weights, ws elements apart, of steps vectors of k, to a panel that has", g.set.lanes),
		"width rows, and pairs apart elements apart.")
	from, ws, steps, width := g.param("from"), g.param("ws"), g.param("steps"), g.param("width")
	apart := g.param("apart")
	for _, r := range []reg.Register{ws, apart, width} {
		g.SHLQ(U8(2), r)
	}
	p := g.places(g.param("to"), apart)
	ws3, four := g.GP64(), g.GP64()
	g.LEAQ(Mem{Base: ws, Index: ws, Scale: 2}, ws3)
	g.MOVQ(ws, four)
	g.SHLQ(U8(2), four)
	rows := []reg.Register{from}
	for i := 1; i < g.set.lanes/4; i++ {
		r := g.GP64()
		g.LEAQ(Mem{Base: rows[i-1], Index: four, Scale: 1}, r)
		rows = append(rows, r)
	}
	g.Label("steps")
	for quad := range g.set.lanes / 4 {
		var m [4]vector
		for t := range m {
			line := strided(from, ws, ws3)[t].Offset(16 * quad)
			m[t] = g.zero() // all of it: else it would seem to live before
			for i, r := range rows {
				line.Base = r
				switch {
				case i == 0:
					g.VMOVUPS(line, m[t].AsX())
				case g.wide():
					g.VINSERTF32X4(U8(i), line, m[t], m[t])
				default:
					g.VINSERTF128(U8(i), line, m[t], m[t])
				}
			}
		}
		if second := g.set.lanes / 8; quad == second {
			p.advance(g, width)
		}
		for j, v := range g.transposed(m) {
			g.VMOVUPS(v, p.at(g.pair(4*quad+j)))
		}
	}
	p.advance(g, width)
	for _, r := range rows {
		g.ADDQ(U8(g.bytes()), r)
	}
	g.DECQ(steps)
	g.JNZ(LabelRef("steps"))
	g.end()
}

// packTokens writes a group of tokens.
func (g *panel) packTokens() {
	g.function("packTokens", "(to, from *float32, xs, steps, apart int)",
		fmt.Sprintf("writes %d rows of x, xs elements apart, of steps vectors of k, as packed tokens whose pairs", group),
		"are apart elements apart.")
	from, xs, steps := g.param("from"), g.param("xs"), g.param("steps")
	apart, xs3 := g.param("apart"), g.GP64()
	g.SHLQ(U8(2), xs)
	g.SHLQ(U8(2), apart)
	g.LEAQ(Mem{Base: xs, Index: xs, Scale: 2}, xs3)
	p := g.places(g.param("to"), apart)
	g.Label("steps")
	for quad := range g.set.lanes / 8 {
		var m [4]vector
		for t := range m {
			line := strided(from, xs, xs3)[t].Offset(16 * quad)
			m[t] = g.YMM()
			g.VXORPS(m[t], m[t], m[t])
			g.VMOVUPS(line, m[t].AsX())
			g.VINSERTF128(U8(1), line.Offset(2*g.set.lanes), m[t], m[t])
		}
		for j, v := range g.transposed(m) {
			g.VMOVUPS(v, p.at(g.pair(4*quad+j)))
		}
	}
	p.advance(g, U8(8*group))
	g.ADDQ(U8(g.bytes()), from)
	g.DECQ(steps)
	g.JNZ(LabelRef("steps"))
	g.end()
}

// tile sums a pair's lanes, for groups of tokens.
func (g *panel) tile(vectors int) {
	g.function(fmt.Sprintf("panel%d", vectors), "(w, x, sums *float32, steps, groups, adds, apart int, ahead uintptr, lines, step int)",
		fmt.Sprintf("sums a pair of lanes of %d vectors of rows, of steps vectors of k, for groups of tokens.", vectors),
		"It adds the sums of a number of levels, which are apart elements apart, and leaves the result at the next level.",
		"For each group it prefetches four times a number of lines, the four step bytes apart, and what it fetches",
		"for the next is four steps ahead.")
	tokens := group // at a time
	if !g.wide() {
		tokens = 2
	}
	x, sums, apart := g.param("x"), g.param("sums"), g.param("apart")
	g.SHLQ(U8(2), apart)
	var acc [2][group][3]vector
	for lane := range acc {
		for t := range tokens {
			for v := range vectors {
				acc[lane][t][v] = g.new()
			}
		}
	}
	w, left := g.GP64(), g.GP64()
	g.Label("group")
	g.fetch()
	for from := 0; from < group; from += tokens {
		steps, add, done := g.label("steps"), g.label("add"), g.label("added")
		for lane := range acc {
			for t := range tokens {
				for _, s := range acc[lane][t][:vectors] {
					g.clear(s)
				}
			}
		}
		g.MOVQ(g.memory("w"), w)
		g.MOVQ(g.memory("steps"), left)
		g.Label(steps)
		for lane := range acc {
			var row []vector
			for v := range vectors {
				row = append(row, g.load(Mem{Base: w, Disp: (lane*vectors + v) * g.bytes()}, nil))
			}
			for t := range tokens {
				b := g.new()
				g.VBROADCASTSS(Mem{Base: x, Disp: 4 * (lane*group + from + t)}, b)
				for v := range vectors {
					g.VFMADD231PS(row[v], b, acc[lane][t][v])
				}
			}
		}
		g.ADDQ(U32(2*vectors*g.bytes()), w)
		g.ADDQ(U8(8*group), x)
		g.DECQ(left)
		g.JNZ(LabelRef(steps))

		each := func(f func(at Mem, s vector), base reg.Register) {
			for t := range tokens {
				for v := range vectors {
					f(Mem{Base: base, Disp: ((from+t)*vectors + v) * g.bytes()}, acc[0][t][v])
				}
			}
		}
		for t := range tokens {
			for v := range vectors {
				g.VADDPS(acc[1][t][v], acc[0][t][v], acc[0][t][v])
			}
		}
		g.MOVQ(sums, w)
		g.MOVQ(g.memory("adds"), left)
		g.TESTQ(left, left)
		g.JZ(LabelRef(done))
		g.Label(add)
		each(func(at Mem, s vector) { g.VADDPS(at, s, s) }, w)
		g.ADDQ(apart, w)
		g.DECQ(left)
		g.JNZ(LabelRef(add))
		g.Label(done)
		each(func(at Mem, s vector) { g.VMOVUPS(s, at) }, w)
		if from+tokens < group {
			back := g.param("steps")
			g.SHLQ(U8(5), back)
			g.SUBQ(back, x)
		}
	}
	g.ADDQ(U32(group*vectors*g.bytes()), sums)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}

// fetch asks for memory that is wanted later.
func (g *panel) fetch() {
	ahead, lines, step, step3 := g.param("ahead"), g.param("lines"), g.param("step"), g.GP64()
	g.LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	g.TESTQ(lines, lines)
	g.JZ(LabelRef("fetched"))
	g.Label("fetch")
	for _, at := range strided(ahead, step, step3) {
		g.PREFETCHT1(at)
	}
	g.ADDQ(U8(64), ahead)
	g.DECQ(lines)
	g.JNZ(LabelRef("fetch"))
	g.Label("fetched")
	g.SHLQ(U8(2), step)
	g.ADDQ(step, g.memory("ahead"))
}

// drain takes the sums out.
func (g *panel) drain() {
	g.function("drain", "(y *float32, ys int, sums *float32, width, tokens, cols, more int)",
		"adds sums, width apart, to cols elements of the rows of y, which are ys elements apart, or without more to 0.")
	y, ys, sums, width, tokens := g.param("y"), g.param("ys"), g.param("sums"), g.param("width"), g.param("tokens")
	cols, more := g.param("cols"), g.param("more")
	g.SHLQ(U8(2), ys)
	g.SHLQ(U8(2), width)
	whole, rest := g.GP64(), g.GP64()
	g.MOVQ(cols, rest)
	g.ANDQ(U8(g.set.lanes-1), rest)
	g.MOVQ(cols, whole)
	g.SUBQ(rest, whole)
	g.SHLQ(U8(2), whole)
	t := g.tail(rest)
	i := g.GP64()
	row := func(old func(at Mem, t *tail) vector) {
		next, all, part, done := g.label("row"), g.label("vectors"), g.label("part"), g.label("done")
		g.Label(next)
		g.XORQ(i, i)
		at, from := Mem{Base: y, Index: i, Scale: 1}, Mem{Base: sums, Index: i, Scale: 1}
		g.Label(all)
		g.CMPQ(i, whole)
		g.JGE(LabelRef(part))
		g.store(g.add(old(at, nil), g.load(from, nil)), at, nil)
		g.ADDQ(U8(g.bytes()), i)
		g.JMP(LabelRef(all))
		g.Label(part)
		g.TESTQ(rest, rest)
		g.JZ(LabelRef(done))
		g.store(g.add(old(at, &t), g.load(from, &t)), at, &t)
		g.Label(done)
		g.ADDQ(ys, y)
		g.ADDQ(width, sums)
		g.DECQ(tokens)
		g.JNZ(LabelRef(next))
	}
	g.TESTQ(more, more)
	g.JZ(LabelRef("first"))
	row(func(at Mem, t *tail) vector { return g.load(at, t) })
	g.end()
	g.Label("first")
	zero := g.zero()
	row(func(Mem, *tail) vector { return zero })
	g.end()
}
