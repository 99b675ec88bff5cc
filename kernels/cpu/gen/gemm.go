package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemm generates tiles: products of 4 rows of weights, or of one, with some rows of x. The order of
// a sum does not depend on the tile: lane i of a vector sums the elements i, i + lanes, … with
// fused multiplications, and halves are added until one is left. A rest of k is a vector padded
// with zeros; tiles of 16-bit weights take whole vectors only.
func gemm(c *build.Context) {
	mask := c.StaticGlobal("gemmMask") // from 4n bytes before its middle on, n lanes of ones
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 16 {
		c.AddDatum(4*i, U32(uint32(0xffffffff*(1-i/8))))
	}
	words := c.StaticGlobal("gemmWords")
	c.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 16 {
		c.AddDatum(4*i, U32(uint32(i<<16)))
	}
	for _, set := range []isa{avx2, avx512} {
		for tokens := 1; tokens <= set.tokens; tokens++ {
			for _, f := range formats {
				(&generator{vec: newVec(c, set), mask: mask, words: words, format: f, rows: 4, tokens: tokens}).write()
			}
			(&generator{vec: newVec(c, set), mask: mask, words: words, format: f32, rows: 1, tokens: tokens}).write()
		}
		for _, f := range formats {
			(&generator{vec: newVec(c, set), mask: mask, words: words, format: f, rows: 4, tokens: 1}).streams()
		}
	}
}

// generator is of one function.
type generator struct {
	*vec
	mask, words  Mem
	format       format
	rows, tokens int

	w, ws, ws3           reg.Register // rows of weights: w, w+ws, w+2ws, w+ws3
	x, xs, upper         reg.Register // upper is the fourth row of x, from which the last three are found
	y                    reg.Register
	ahead, apart, apart3 reg.Register // what is fetched ahead: four lines

	upperHalves vector // where the upper halves of 16 lanes are in 16 words
	odd         reg.OpmaskVirtual
}

func (g *generator) write() {
	g.declare()
	g.Label("group")
	g.nextTokens()
	sums := g.vectors(g.param("k"), g.fetchAhead)
	if g.format == f32 { // others have whole vectors
		n := g.GP64()
		g.Load(g.Param("k"), n)
		g.masked(sums, n)
	}
	g.store(g.reduce(sums))
	g.next()
}

func (g *generator) declare() {
	name := fmt.Sprintf("gemm%sx%dx%d", g.format.name, g.rows, g.tokens)
	doc := []string{fmt.Sprintf("is gemmF32x4x1%s for %d rows of x and groups of %d of w.", g.set.name, g.tokens, g.rows)}
	if name == "gemmF32x4x1" {
		doc = []string{"adds x[t]·w[r] to y[t][r], for 1 row of x and groups of 4 of w, of k elements.",
			"Rows are ws, xs and ys elements apart. At each vector of k it fetches lines that are apart",
			"bytes apart, the first of them ahead, and moves ahead by step; at each group it fetches near",
			"bytes of as many rows of x from next on."}
	}
	g.function(name, fmt.Sprintf("(w *%s, ws int, x *float32, xs int, y *float32, ys, k, groups int, ahead uintptr, apart, step int, next uintptr, near int)", g.format.element), doc...)
	g.pointers()
}

// shift makes a number of weights one of bytes.
func (g *generator) shift() Constant { return U8(g.format.size / 2) }

func (g *generator) pointers() {
	g.w, g.ws = g.param("w"), g.param("ws")
	g.SHLQ(g.shift(), g.ws)
	if g.rows > 1 {
		g.ws3 = g.GP64()
		g.LEAQ(Mem{Base: g.ws, Index: g.ws, Scale: 2}, g.ws3)
	}
	g.x, g.y = g.param("x"), g.param("y")
	if g.tokens > 1 {
		g.xs = g.param("xs")
		g.SHLQ(U8(2), g.xs)
	}
	if g.tokens > 3 {
		g.upper = g.GP64()
		g.LEAQ(Mem{Base: g.xs, Index: g.xs, Scale: 2}, g.upper)
		g.ADDQ(g.x, g.upper)
	}
	g.ahead, g.apart, g.apart3 = g.param("ahead"), g.param("apart"), g.GP64()
	g.LEAQ(Mem{Base: g.apart, Index: g.apart, Scale: 2}, g.apart3)
	g.SHLQ(U8(2), g.memory("ys"))
	g.halves()
}

// halves is what widen takes for bf16 in AVX-512: a permutation of words, and zeros for
// the lower halves.
func (g *generator) halves() {
	if g.format != bf16 || g.set.lanes != 16 {
		return
	}
	bits := g.GP32()
	g.upperHalves, g.odd = g.ZMM(), g.K()
	g.VMOVUPS(g.words, g.upperHalves)
	g.MOVL(U32(0xaaaaaaaa), bits)
	g.KMOVD(bits, g.odd)
}

// row is where row r of the weight goes on.
func (g *generator) row(r int) Mem {
	return strided(g.w, g.ws, g.ws3)[r]
}

// token is where row t of x goes on.
func (g *generator) token(t int) Mem {
	base := g.x
	if t >= 3 {
		base, t = g.upper, t-3
	}
	return strided(base, g.xs, nil)[t]
}

// nextTokens fetches part of the rows of x that come after these.
func (g *generator) nextTokens() {
	near, next, upper := g.param("near"), g.param("next"), g.GP64()
	g.TESTQ(near, near)
	g.JZ(LabelRef("fetched"))
	g.Label("fetch")
	for t := range g.tokens {
		switch {
		case t == 3:
			g.LEAQ(Mem{Base: g.xs, Index: g.xs, Scale: 2}, upper)
			g.ADDQ(next, upper)
			g.PREFETCHT0(Mem{Base: upper})
		case t > 3:
			g.PREFETCHT0(Mem{Base: upper, Index: g.xs, Scale: uint8(t - 3)})
		case t > 0:
			g.PREFETCHT0(Mem{Base: next, Index: g.xs, Scale: uint8(t)})
		default:
			g.PREFETCHT0(Mem{Base: next})
		}
	}
	g.ADDQ(U8(64), next)
	g.SUBQ(U8(64), near)
	g.JNZ(LabelRef("fetch"))
	g.MOVQ(next, g.memory("next"))
	g.Label("fetched")
}

// sums are zeros, by token and row.
func (g *generator) sums() [][]vector {
	sums := make([][]vector, g.tokens)
	for t := range sums {
		for range g.rows {
			sums[t] = append(sums[t], g.zero())
		}
	}
	return sums
}

// vectors sums what fills vectors of k elements: a vector of each row of weights is loaded and
// widened once, for all tokens. It changes k.
func (g *generator) vectors(k reg.Register, each func()) [][]vector {
	sums := g.sums()
	g.SUBQ(U8(g.set.lanes), k)
	g.JLT(LabelRef("narrow"))
	g.Label("vectors")
	var x []vector
	for t := range sums {
		x = append(x, g.new())
		g.VMOVUPS(g.token(t), x[t])
	}
	for r := range g.rows {
		w := g.new()
		g.widen(g.row(r), w)
		for t := range sums {
			g.VFMADD231PS(w, x[t], sums[t][r])
		}
	}
	each()
	g.ADDQ(Imm(uint64(g.set.lanes*g.format.size)), g.w)
	g.ADDQ(Imm(uint64(g.set.lanes*4)), g.x)
	if g.upper != nil {
		g.ADDQ(Imm(uint64(g.set.lanes*4)), g.upper)
	}
	g.SUBQ(U8(g.set.lanes), k)
	g.JGE(LabelRef("vectors"))
	g.Label("narrow")
	return sums
}

// fetchAhead fetches lines of what comes next.
func (g *generator) fetchAhead() {
	for _, line := range strided(g.ahead, g.apart, g.apart3) {
		g.PREFETCHT0(line)
	}
	g.ADDQ(g.memory("step"), g.ahead)
}

// widen loads a vector of weights as f32.
func (g *generator) widen(from Mem, to vector) {
	if g.upperHalves == nil {
		g.vec.widen(g.format, from, to)
		return
	}
	g.VBROADCASTI64X4(from, to)
	g.VPERMW_Z(to, g.upperHalves, g.odd, to)
}

// masked sums what of n elements does not fill a vector. It changes n.
func (g *generator) masked(sums [][]vector, n reg.GPVirtual) {
	g.ANDQ(U8(g.set.lanes-1), n)
	g.JZ(LabelRef("summed"))
	load := g.maskedLoad(n)
	var x []vector
	for t := range sums {
		x = append(x, g.new())
		load(g.token(t), x[t])
	}
	for r := range g.rows {
		w := g.new()
		load(g.row(r), w)
		for t := range sums {
			g.VFMADD231PS(w, x[t], sums[t][r])
		}
	}
	g.Label("summed")
}

// maskedLoad is how to load the first n elements, and zeros. AVX2 has its mask in the
// register that it loads to, since no other is left.
func (g *generator) maskedLoad(n reg.GPVirtual) func(from Mem, to vector) {
	if g.set.lanes == 16 {
		bits, mask := g.GP32(), g.K()
		g.MOVL(I32(-1), bits)
		g.BZHIL(n.As32(), bits, bits)
		g.KMOVW(bits, mask)
		return func(from Mem, to vector) { g.VMOVUPS_Z(from, mask, to) }
	}
	mask := g.GP64()
	g.LEAQ(g.mask.Offset(32), mask)
	g.SHLQ(U8(2), n)
	g.SUBQ(n, mask)
	return func(from Mem, to vector) {
		g.VMOVUPS(Mem{Base: mask}, to)
		g.VMASKMOVPS(from, to, to)
	}
}

// pair is two vectors whose lanes are added.
type pair struct {
	a, b vector
	half int
}

// reduce adds the lanes of the sums: vectors that have lanes for 4 rows for each of
// 4 tokens, of AVX2 2. Fewer tokens come several times.
func (g *generator) reduce(sums [][]vector) []vector {
	var out []vector
	each := g.set.lanes / 4
	for from := 0; from < g.tokens; from += each {
		n := min(each, g.tokens-from)
		done := map[pair]vector{}
		fold := func(half int, a, b vector) vector {
			p := pair{a, b, half}
			if done[p] == nil {
				done[p] = g.fold(p)
			}
			return done[p]
		}
		var rows [4]vector // that is left of a row, for all the tokens
		for r := range rows {
			at := func(t int) vector { return sums[from+t%n][r%g.rows] }
			if each == 4 {
				rows[r] = fold(4, fold(8, at(0), at(1)), fold(8, at(2), at(3)))
			} else {
				rows[r] = fold(4, at(0), at(1))
			}
		}
		out = append(out, fold(1, fold(2, rows[0], rows[1]), fold(2, rows[2], rows[3])))
	}
	return out
}

// fold adds lanes that are half lanes apart: those of a come to where they are lower,
// those of b to where they are higher.
func (g *generator) fold(p pair) vector {
	lo, hi := g.new(), g.new()
	switch {
	case p.half == 8:
		g.VSHUFF64X2(U8(0x44), p.b, p.a, lo)
		g.VSHUFF64X2(U8(0xee), p.b, p.a, hi)
	case p.half == 4 && g.set.lanes == 16:
		g.VSHUFF32X4(U8(0x88), p.b, p.a, lo)
		g.VSHUFF32X4(U8(0xdd), p.b, p.a, hi)
	case p.half == 4:
		g.VPERM2F128(U8(0x20), p.b, p.a, lo)
		g.VPERM2F128(U8(0x31), p.b, p.a, hi)
	case p.half == 2:
		g.VUNPCKLPD(p.b, p.a, lo)
		g.VUNPCKHPD(p.b, p.a, hi)
	default:
		g.VSHUFPS(U8(0x88), p.b, p.a, lo)
		g.VSHUFPS(U8(0xdd), p.b, p.a, hi)
	}
	g.VADDPS(hi, lo, lo)
	return lo
}

// store adds the sums to the result.
func (g *generator) store(sums []vector) {
	at := g.GP64()
	g.MOVQ(g.y, at)
	each := g.set.lanes / 4
	for t := range g.tokens {
		if t > 0 {
			g.ADDQ(g.memory("ys"), at)
		}
		s := sums[t/each].AsX()
		if t%each > 0 {
			s = g.XMM()
			if g.set.lanes == 16 {
				g.VEXTRACTF32X4(U8(t%each), sums[t/each], s)
			} else {
				g.VEXTRACTF128(U8(1), sums[t/each], s)
			}
		}
		y := Mem{Base: at}
		sum := g.XMM()
		if g.rows == 1 {
			g.VADDSS(y, s, sum)
			g.VMOVSS(sum, y)
		} else {
			g.VADDPS(y, s, sum)
			g.VMOVUPS(sum, y)
		}
	}
}

// next goes on to the next group of rows.
func (g *generator) next() {
	back := g.param("k")
	g.ANDQ(I8(-g.set.lanes), back)
	g.SHLQ(g.shift(), back)
	g.SUBQ(back, g.w)
	if g.format != f32 {
		g.ADDQ(back, back)
	}
	g.SUBQ(back, g.x)
	if g.upper != nil {
		g.SUBQ(back, g.upper)
	}
	g.nextGroup()
}

// nextGroup goes on with the next group, where k begins.
func (g *generator) nextGroup() {
	if g.rows == 1 {
		g.ADDQ(g.ws, g.w)
	} else {
		g.LEAQ(Mem{Base: g.w, Index: g.ws, Scale: 4}, g.w)
	}
	g.ADDQ(U8(4*g.rows), g.y)
	g.DECQ(g.memory("groups"))
	g.JNZ(LabelRef("group"))
	g.end()
}
