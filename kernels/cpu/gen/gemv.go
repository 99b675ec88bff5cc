package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const rows = 4 // of the weight, at once

// isa is an instruction set.
type isa struct {
	name   string
	lanes  int
	tokens []int // that the functions take at once: rows·n sums, n+1 more registers
}

var (
	avx2   = isa{"AVX2", 8, []int{1, 3}}
	avx512 = isa{"AVX512", 16, []int{1, 3, 6}}
)

// format is that of weights.
type format struct {
	name, element string
	size          int
}

var formats = []format{{"F32", "float32", 4}, {"BF16", "uint16", 2}, {"F16", "uint16", 2}}

// gemv generates the products of 4 rows of weights with 1, 3 or 6 rows of x. The order
// of a sum does not depend on how many there are: lane i of a vector sums the
// elements i, i + lanes, … with fused multiplications, halves are added until 4 lanes
// are left, 0 to 2 and 1 to 3, those two, and then what is left of k, one by one.
func gemv(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		for _, f := range formats {
			for _, n := range set.tokens {
				g := &generator{Context: c, set: set, format: f, tokens: n}
				g.function(fmt.Sprintf("gemv%sx%d%s", f.name, n, set.name))
			}
		}
	}
}

// generator is of one function.
type generator struct {
	*build.Context
	set    isa
	format format
	tokens int

	w, ws, ws3      reg.Register // four rows: w, w+ws, w+2ws, w+ws3
	x, xs, upper, k reg.Register // upper is the fourth row of x, from which the last three are found
}

func (g *generator) function(name string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	g.Doc(fmt.Sprintf("%s multiplies 4 rows of weights of k elements with %d of x: y[t][r] = x[t]·w[r].", name, g.tokens),
		"Rows are ws, xs and ys elements apart; where ws is 0, only y[t][0] is written.")
	g.SignatureExpr(fmt.Sprintf("func(w *%s, ws int, x *float32, xs int, y *float32, ys, k int)", g.format.element))
	g.pointers()
	sums := g.reduce(g.vectors())
	g.tail(sums)
	g.store(sums)
	g.VZEROUPPER()
	g.RET()
}

func (g *generator) pointers() {
	g.w, g.ws, g.ws3 = g.Load(g.Param("w"), g.GP64()), g.Load(g.Param("ws"), g.GP64()), g.GP64()
	g.x, g.k = g.Load(g.Param("x"), g.GP64()), g.Load(g.Param("k"), g.GP64())
	shift := map[int]Constant{2: U8(1), 4: U8(2)}
	g.SHLQ(shift[g.format.size], g.ws)
	g.LEAQ(Mem{Base: g.ws, Index: g.ws, Scale: 2}, g.ws3)
	if g.tokens > 1 {
		g.xs = g.Load(g.Param("xs"), g.GP64())
		g.SHLQ(shift[4], g.xs)
	}
	if g.tokens > 3 {
		g.upper = g.GP64()
		g.LEAQ(Mem{Base: g.xs, Index: g.xs, Scale: 2}, g.upper)
		g.ADDQ(g.x, g.upper)
	}
}

// row is where row r of the weight goes on.
func (g *generator) row(r int) Mem {
	return [rows]Mem{{Base: g.w}, {Base: g.w, Index: g.ws, Scale: 1}, {Base: g.w, Index: g.ws, Scale: 2}, {Base: g.w, Index: g.ws3, Scale: 1}}[r]
}

// token is where row t of x goes on.
func (g *generator) token(t int) Mem {
	base := g.x
	if t >= 3 {
		base, t = g.upper, t-3
	}
	return [3]Mem{{Base: base}, {Base: base, Index: g.xs, Scale: 1}, {Base: base, Index: g.xs, Scale: 2}}[t]
}

// advance moves on by n elements.
func (g *generator) advance(n int) {
	g.ADDQ(Imm(uint64(n*g.format.size)), g.w)
	g.ADDQ(Imm(uint64(n*4)), g.x)
	if g.upper != nil {
		g.ADDQ(Imm(uint64(n*4)), g.upper)
	}
}

func (g *generator) vector() reg.VecVirtual {
	if g.set.lanes == 16 {
		return g.ZMM()
	}
	return g.YMM()
}

// vectors sums what fills vectors: a vector of each row of weights is loaded and
// widened once, for all tokens.
func (g *generator) vectors() [][rows]reg.VecVirtual {
	sums := make([][rows]reg.VecVirtual, g.tokens)
	for t := range sums {
		for r := range rows {
			sums[t][r] = g.vector()
			g.zero(sums[t][r])
		}
	}
	g.SUBQ(U8(g.set.lanes), g.k)
	g.JLT(LabelRef("narrow"))
	g.Label("vectors")
	var x []reg.VecVirtual
	for t := range sums {
		x = append(x, g.vector())
		g.VMOVUPS(g.token(t), x[t])
	}
	for r := range rows {
		w := g.vector()
		g.widen(g.row(r), w)
		for t := range sums {
			g.VFMADD231PS(w, x[t], sums[t][r])
		}
	}
	g.advance(g.set.lanes)
	g.SUBQ(U8(g.set.lanes), g.k)
	g.JGE(LabelRef("vectors"))
	g.Label("narrow")
	return sums
}

func (g *generator) zero(v reg.VecVirtual) {
	if g.set.lanes == 16 {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
}

// widen loads a vector of weights as f32.
func (g *generator) widen(from Mem, to reg.VecVirtual) {
	switch g.format.name {
	case "F32":
		g.VMOVUPS(from, to)
	case "BF16":
		g.VPMOVZXWD(from, to)
		g.VPSLLD(U8(16), to, to)
	case "F16":
		g.VCVTPH2PS(from, to)
	}
}

// reduce adds the lanes of the sums: a vector for each token, with a lane per row.
func (g *generator) reduce(sums [][rows]reg.VecVirtual) []reg.VecVirtual {
	var out []reg.VecVirtual
	for _, token := range sums {
		var quarter [rows]reg.VecVirtual
		for r, s := range token {
			quarter[r] = g.quarter(s)
		}
		out = append(out, g.transposed(quarter))
	}
	return out
}

// quarter adds the upper half to the lower until four lanes are left.
func (g *generator) quarter(s reg.VecVirtual) reg.VecVirtual {
	x := g.XMM()
	if g.set.lanes == 16 {
		y := g.YMM()
		g.VEXTRACTF64X4(U8(1), s, y)
		g.VADDPS(y, s.AsY(), y)
		g.VEXTRACTF32X4(U8(1), y, x)
		g.VADDPS(x, y.AsX(), x)
		return x
	}
	g.VEXTRACTF128(U8(1), s, x)
	g.VADDPS(x, s.AsX(), x)
	return x
}

// transposed adds the lanes of four vectors: (0 + 2) + (1 + 3).
func (g *generator) transposed(v [rows]reg.VecVirtual) reg.VecVirtual {
	pair := func(a, b reg.VecVirtual) reg.VecVirtual {
		lo, hi := g.XMM(), g.XMM()
		g.VUNPCKLPS(b, a, lo)
		g.VUNPCKHPS(b, a, hi)
		g.VADDPS(hi, lo, lo)
		return lo
	}
	a, b := pair(v[0], v[1]), pair(v[2], v[3])
	lo, hi := g.XMM(), g.XMM()
	g.VUNPCKLPD(b, a, lo)
	g.VUNPCKHPD(b, a, hi)
	g.VADDPS(hi, lo, lo)
	return lo
}

// tail adds what does not fill a vector, an element of the four rows at a time.
func (g *generator) tail(sums []reg.VecVirtual) {
	g.ADDQ(U8(g.set.lanes), g.k)
	g.JZ(LabelRef("done"))
	g.Label("tail")
	w := g.column()
	for t, s := range sums {
		x := g.XMM()
		g.VBROADCASTSS(g.token(t), x)
		g.VFMADD231PS(w, x, s)
	}
	g.advance(1)
	g.DECQ(g.k)
	g.JNZ(LabelRef("tail"))
	g.Label("done")
}

// column loads an element of each row, as f32. A bf16 goes to the upper half of its lane.
func (g *generator) column() reg.VecVirtual {
	w := g.XMM()
	if g.format.name == "F32" {
		g.VMOVSS(g.row(0), w)
		for r := 1; r < rows; r++ {
			g.VINSERTPS(U8(r<<4), g.row(r), w, w)
		}
		return w
	}
	g.VPXOR(w, w, w)
	for r := range rows {
		lane := r
		if g.format.name == "BF16" {
			lane = 2*r + 1
		}
		g.VPINSRW(U8(lane), g.row(r), w, w)
	}
	if g.format.name == "F16" {
		g.VCVTPH2PS(w, w)
	}
	return w
}

func (g *generator) store(sums []reg.VecVirtual) {
	y, ys := g.Load(g.Param("y"), g.GP64()), g.Load(g.Param("ys"), g.GP64())
	g.SHLQ(U8(2), ys)
	g.TESTQ(g.ws, g.ws)
	g.JZ(LabelRef("single"))
	for t, s := range sums {
		if t > 0 {
			g.ADDQ(ys, y)
		}
		g.VMOVUPS(s, Mem{Base: y})
	}
	g.JMP(LabelRef("stored"))
	g.Label("single")
	y = g.Load(g.Param("y"), g.GP64())
	for t, s := range sums {
		if t > 0 {
			g.ADDQ(ys, y)
		}
		g.VMOVSS(s, Mem{Base: y})
	}
	g.Label("stored")
}
