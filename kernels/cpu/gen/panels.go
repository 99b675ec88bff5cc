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
// Lanes are summed in 8 parts: of AVX-512 lane i and lane i + 8 together, of AVX2 each alone, so
// that its registers have room for four tokens and three loads of weights serve all of them. Parts
// are in the order that their sums are added in: part p has the lane that has p's bits in reverse.
// A panel has for each part, and each vector of k, the rows' elements in its lanes; packed tokens
// have those of four tokens. With AVX512_BF16 an element is a pair of bf16, which are as many bits.
func panels(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := &panel{newVec(c, set)}
		g.packRows(f32)
		g.packRows(bf16)
		g.packTokens()
		for vectors := 1; vectors <= 3; vectors++ {
			g.tile(vectors)
		}
		g.drain()
	}
	for vectors := 1; vectors <= 3; vectors++ {
		(&panel{newVec(c, avx512BF16)}).tile(vectors)
	}
}

const (
	group = 4 // tokens that are packed together
	parts = 8 // of the lanes
)

type panel struct{ *vec }

// each is how many lanes a part has.
func (g *panel) each() int { return g.set.lanes / parts }

// part is that of a lane.
func (g *panel) part(lane int) int { return int(bits.Reverse8(uint8(lane%parts)) >> 5) }

// places are where parts lie, from an address on.
type places struct {
	even, odd     reg.Register // where parts 0 and 1 are
	one, two, six reg.Register
}

func (g *panel) places(to, apart reg.Register) places {
	p := places{even: to, odd: g.GP64(), one: apart, two: g.GP64(), six: g.GP64()}
	g.LEAQ(Mem{Base: to, Index: apart, Scale: 1}, p.odd)
	g.LEAQ(Mem{Base: apart, Index: apart, Scale: 1}, p.two)
	g.LEAQ(Mem{Base: p.two, Index: p.two, Scale: 2}, p.six)
	return p
}

func (p *places) at(part int) Mem {
	base := p.even
	if part%2 == 1 {
		base = p.odd
	}
	switch part / 2 {
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
func (g *panel) packRows(f format) {
	name := "packRows"
	if f == bf16 {
		name += f.Name
	}
	g.function(name, fmt.Sprintf("(to *float32, from *%s, ws, steps, apart, width int)", f.Element),
		fmt.Sprintf("writes %d rows of weights, ws elements apart, of steps vectors of k, to a panel that has", g.set.lanes),
		"width rows, and parts apart elements apart.")
	from, ws, steps, width := g.param("from"), g.strideOf(f, "ws"), g.param("steps"), g.stride("width")
	p := g.places(g.param("to"), g.stride("apart"))
	ws3, four := g.triple(ws), g.GP64()
	g.MOVQ(ws, four)
	g.SHLQ(U8(2), four)
	rows := []reg.Register{from}
	for i := 1; i < g.set.lanes/4; i++ {
		r := g.GP64()
		g.LEAQ(Mem{Base: rows[i-1], Index: four, Scale: 1}, r)
		rows = append(rows, r)
	}
	square := g.square
	if f == bf16 {
		zero := g.zero()
		square = func(lines [4]Mem, rows []reg.Register) [4]vector { return g.halves(lines, rows, zero) }
	}
	g.Label("steps")
	for quad := range g.set.lanes / 4 {
		lines := strided(from, ws, ws3)
		for t := range lines {
			lines[t] = lines[t].Offset(4 * f.Size * quad)
		}
		for j, v := range square(lines, rows) {
			g.VMOVUPS(v, p.at(g.part(4*quad+j)))
		}
		if quad%2 == 1 { // the last of 8 lanes
			p.advance(g, width)
		}
	}
	for _, r := range rows {
		g.ADDQ(U8(g.set.lanes*f.Size), r)
	}
	g.DECQ(steps)
	g.JNZ(LabelRef("steps"))
	g.end()
}

// square loads 4 elements of each row, and turns them: a vector has an element of all rows. Of four
// lines each goes on at every fourth row.
func (g *panel) square(lines [4]Mem, rows []reg.Register) [4]vector {
	var m [4]vector
	for t, line := range lines {
		var from [4]Mem
		for i, r := range rows {
			from[i] = line
			from[i].Base = r
		}
		m[t] = g.quadsOf(from)
	}
	return g.transposed(m)
}

// halves is square for rows in bf16, which become f32 with zeros as their lower halves.
func (g *panel) halves(lines [4]Mem, rows []reg.Register, zero vector) [4]vector {
	out := g.halvesOf8(lines, rows[:2], zero)
	if !g.wide() {
		return out
	}
	for i, upper := range g.halvesOf8(lines, rows[2:], zero) {
		v := g.new()
		g.VINSERTI64X4(U8(1), upper, out[i].AsZ(), v)
		out[i] = v
	}
	return out
}

func (g *panel) halvesOf8(lines [4]Mem, rows []reg.Register, zero vector) (out [4]vector) {
	var m [4]vector
	for t, line := range lines {
		m[t] = g.XMM()
		line.Base = rows[0]
		g.VMOVQ(line, m[t])
		line.Base = rows[1]
		g.VMOVHPS(line, m[t], m[t])
	}
	pair := func(op func(...Op), a, b vector) vector { v := g.XMM(); op(b, a, v); return v }
	a, b := pair(g.VPUNPCKLWD, m[0], m[1]), pair(g.VPUNPCKHWD, m[0], m[1])
	c, d := pair(g.VPUNPCKLWD, m[2], m[3]), pair(g.VPUNPCKHWD, m[2], m[3])
	for i, op := range []func(...Op){g.VPUNPCKLDQ, g.VPUNPCKHDQ} {
		lower, upper := pair(op, a, c), pair(op, b, d)
		both := g.YMM()
		g.VINSERTI128(U8(1), upper, lower.AsY(), both)
		for j, op := range []func(...Op){g.VPUNPCKLWD, g.VPUNPCKHWD} {
			v := g.YMM()
			op(both, zero.AsY(), v)
			out[2*i+j] = v
		}
	}
	return out
}

// packTokens writes a group of tokens.
func (g *panel) packTokens() {
	g.function("packTokens", "(to, from *float32, xs, steps, apart int)",
		fmt.Sprintf("writes %d rows of x, xs elements apart, of steps vectors of k, as packed tokens whose parts", group),
		"are apart elements apart.")
	from, xs, steps := g.param("from"), g.stride("xs"), g.param("steps")
	p, xs3 := g.places(g.param("to"), g.stride("apart")), g.triple(xs)
	g.Label("steps")
	for quad := range parts / 4 {
		var m [4]vector
		for t := range m {
			line := strided(from, xs, xs3)[t].Offset(16 * quad)
			m[t] = g.YMM()
			g.VXORPS(m[t], m[t], m[t])
			g.VMOVUPS(line, m[t].AsX())
			if g.each() == 2 {
				g.VINSERTF128(U8(1), line.Offset(4*parts), m[t], m[t])
			}
		}
		for j, v := range g.transposed(m) {
			var all Op = v
			if g.each() == 1 {
				all = v.AsX()
			}
			g.VMOVUPS(all, p.at(g.part(4*quad+j)))
		}
	}
	p.advance(g, U8(4*group*g.each()))
	g.ADDQ(U8(g.bytes()), from)
	g.DECQ(steps)
	g.JNZ(LabelRef("steps"))
	g.end()
}

// tile sums a part's lanes, for groups of tokens.
func (g *panel) tile(vectors int) {
	g.function(fmt.Sprintf("panel%d", vectors), "(w, x, sums *float32, steps, groups, adds, apart int, ahead uintptr, lines, step int)",
		fmt.Sprintf("sums a part of the lanes of %d vectors of rows, of steps vectors of k, for groups of tokens.", vectors),
		"It adds the sums of a number of levels, which are apart elements apart, and leaves the result at the next level.",
		"For each group it prefetches four times a number of lines, the four step bytes apart, and what it fetches",
		"for the next is four steps ahead.")
	x, sums, apart := g.param("x"), g.param("sums"), g.stride("apart")
	acc := panelSums{lanes: make([][group][3]vector, g.each()), vectors: vectors}
	acc.each(func(lane, t, v int) { acc.lanes[lane][t][v] = g.new() })
	w, left := g.GP64(), g.GP64()
	g.Label("group")
	g.fetch()
	acc.each(func(lane, t, v int) { g.clear(acc.lanes[lane][t][v]) })
	g.MOVQ(g.memory("w"), w)
	g.MOVQ(g.memory("steps"), left)
	g.Label("steps")
	for lane := range acc.lanes {
		g.multiply(lane, &acc, w, x)
	}
	g.ADDQ(U32(g.each()*vectors*g.bytes()), w)
	g.ADDQ(U8(4*group*g.each()), x)
	g.DECQ(left)
	g.JNZ(LabelRef("steps"))
	g.settle(&acc, sums, apart, w, left)
	g.ADDQ(U32(group*vectors*g.bytes()), sums)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}

// panelSums are vectors of sums, by lane of a part, token of a group and vector of rows.
type panelSums struct {
	lanes   [][group][3]vector
	vectors int
}

func (s *panelSums) each(f func(lane, t, v int)) {
	for lane := range s.lanes {
		for t := range group {
			for v := range s.vectors {
				f(lane, t, v)
			}
		}
	}
}

// multiply adds the products of a lane.
func (g *panel) multiply(lane int, acc *panelSums, w, x reg.Register) {
	var row []vector
	for v := range acc.vectors {
		row = append(row, g.load(Mem{Base: w, Disp: (lane*acc.vectors + v) * g.bytes()}, nil))
	}
	for t := range group {
		b := g.number(Mem{Base: x, Disp: 4 * (lane*group + t)})
		for v := range row {
			if g.set == avx512BF16 {
				dot(g.Context, row[v], b, acc.lanes[lane][t][v])
			} else {
				g.VFMADD231PS(row[v], b, acc.lanes[lane][t][v])
			}
		}
	}
}

// settle adds the part's lanes, and then the sums of levels, and leaves the result at the next.
func (g *panel) settle(acc *panelSums, sums, apart, at, left reg.Register) {
	acc.each(func(lane, t, v int) {
		if lane > 0 {
			g.VADDPS(acc.lanes[lane][t][v], acc.lanes[0][t][v], acc.lanes[0][t][v])
		}
	})
	level := func(f func(at Mem, s vector)) {
		for i := range group * acc.vectors {
			f(Mem{Base: at, Disp: i * g.bytes()}, acc.lanes[0][i/acc.vectors][i%acc.vectors])
		}
	}
	g.MOVQ(sums, at)
	g.MOVQ(g.memory("adds"), left)
	g.TESTQ(left, left)
	g.JZ(LabelRef("added"))
	g.Label("add")
	level(func(at Mem, s vector) { g.VADDPS(at, s, s) })
	g.ADDQ(apart, at)
	g.DECQ(left)
	g.JNZ(LabelRef("add"))
	g.Label("added")
	level(func(at Mem, s vector) { g.VMOVUPS(s, at) })
}

// fetch asks for memory that is wanted later.
func (g *panel) fetch() {
	ahead, lines, step := g.param("ahead"), g.param("lines"), g.param("step")
	rows := strided(ahead, step, g.triple(step))
	g.TESTQ(lines, lines)
	g.JZ(LabelRef("fetched"))
	g.Label("fetch")
	for _, at := range rows {
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
	y, ys, sums, width := g.param("y"), g.stride("ys"), g.param("sums"), g.stride("width")
	tokens, columns := g.param("tokens"), g.columns("cols")
	rows := func(old func(at Mem, t *tail) vector) {
		next := g.label("row")
		g.Label(next)
		columns.each(func(i reg.Register, t *tail) {
			at := Mem{Base: y, Index: i, Scale: 1}
			g.store(g.add(old(at, t), g.load(Mem{Base: sums, Index: i, Scale: 1}, t)), at, t)
		})
		g.ADDQ(ys, y)
		g.ADDQ(width, sums)
		g.DECQ(tokens)
		g.JNZ(LabelRef(next))
		g.end()
	}
	more, zero := g.param("more"), g.zero()
	g.TESTQ(more, more)
	g.JZ(LabelRef("first"))
	rows(g.load)
	g.Label("first")
	rows(func(Mem, *tail) vector { return zero })
}
