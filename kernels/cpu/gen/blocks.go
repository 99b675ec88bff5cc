package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	blockLen   = 32
	blockRows  = 4            // of the weight, at once
	blockBytes = 2 + blockLen // a scale in f16 before it
	ahead      = 6 << 10      // bytes from what is multiplied to what is asked for
)

// blocks generates the products of 4 rows of weights in blocks of 8-bit numbers with 1,
// 3 or 6 rows of x. A weight is widened to what it is exactly in f32; sums have the
// same order in all of them.
func blocks(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		for _, n := range map[int][]int{8: {1, 3}, 16: {1, 3, 6}}[set.lanes] {
			g := &blockGenerator{Context: c, set: set, tokens: n}
			g.function(fmt.Sprintf("blocksx%d%s", n, set.name))
		}
	}
}

// blockGenerator is of one function.
type blockGenerator struct {
	*build.Context
	set    isa
	tokens int

	w, ws, ws3      reg.Register // four rows: w, w+ws, w+2ws, w+ws3
	x, xs, upper, k reg.Register // upper is the fourth row of x, from which the last three are found
}

func (g *blockGenerator) function(name string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	g.Doc(fmt.Sprintf("%s multiplies 4 rows of k blocks of weights with %d of x: y[t][r] = x[t]·w[r].", name, g.tokens),
		"Rows are ws bytes, and xs and ys elements apart; where ws is 0, only y[t][0] is written.",
		"halves has what each f16 is.")
	g.SignatureExpr("func(w *byte, ws int, x *float32, xs int, y *float32, ys, k int, halves *[65536]float32)")
	g.pointers()
	sums := g.reduce(g.sums())
	g.store(sums)
	g.VZEROUPPER()
	g.RET()
}

// sums goes from block to block. A load from a table widens a scale and gives it to all
// lanes: conversions would take the ports that the weights need. What comes after
// these rows is asked for, since short rows side by side are no streams that processors see.
func (g *blockGenerator) sums() [][blockRows]reg.VecVirtual {
	sums := make([][blockRows]reg.VecVirtual, g.tokens)
	for t := range sums {
		for r := range blockRows {
			sums[t][r] = g.vector()
			g.zero(sums[t][r])
		}
	}
	halves := g.Load(g.Param("halves"), g.GP64())
	g.TESTQ(g.k, g.k)
	g.JZ(LabelRef("done"))
	g.Label("block")
	var scales [blockRows]Mem
	for r := range blockRows {
		half := g.GP32()
		g.MOVWLZX(g.row(r), half)
		scales[r] = Mem{Base: halves, Index: half.As64(), Scale: 4}
		g.PREFETCHT0(g.row(r).Offset(ahead))
	}
	for at := 0; at < blockLen; at += g.set.lanes {
		x := g.tokensAt(4 * at)
		for r := range blockRows {
			w := g.weights(g.row(r).Offset(2+at), scales[r])
			for t := range sums {
				g.VFMADD231PS(x[t], w, sums[t][r])
			}
		}
	}
	g.ADDQ(U8(blockBytes), g.w)
	g.ADDQ(U32(4*blockLen), g.x)
	if g.upper != nil {
		g.ADDQ(U32(4*blockLen), g.upper)
	}
	g.DECQ(g.k)
	g.JNZ(LabelRef("block"))
	g.Label("done")
	return sums
}

// tokensAt loads a vector of each row of x, but for the last where registers are few.
func (g *blockGenerator) tokensAt(offset int) []Op {
	var x []Op
	for t := range g.tokens {
		from := g.token(t).Offset(offset)
		if g.set.lanes == 8 && t == 2 {
			x = append(x, from)
			continue
		}
		v := g.vector()
		g.VMOVUPS(from, v)
		x = append(x, v)
	}
	return x
}

// weights widens a vector of numbers, and multiplies with their scale.
func (g *blockGenerator) weights(from, scale Mem) reg.VecVirtual {
	w := g.vector()
	g.VPMOVSXBD(from, w)
	g.VCVTDQ2PS(w, w)
	if g.set.lanes == 16 {
		g.VMULPS_BCST(scale, w, w)
		return w
	}
	s := g.vector()
	g.VBROADCASTSS(scale, s)
	g.VMULPS(s, w, w)
	return w
}

func (g *blockGenerator) pointers() {
	g.w, g.ws, g.ws3 = g.Load(g.Param("w"), g.GP64()), g.Load(g.Param("ws"), g.GP64()), g.GP64()
	g.x, g.k = g.Load(g.Param("x"), g.GP64()), g.Load(g.Param("k"), g.GP64())
	g.LEAQ(Mem{Base: g.ws, Index: g.ws, Scale: 2}, g.ws3)
	if g.tokens > 1 {
		g.xs = g.Load(g.Param("xs"), g.GP64())
		g.SHLQ(U8(2), g.xs)
	}
	if g.tokens > 3 {
		g.upper = g.GP64()
		g.LEAQ(Mem{Base: g.xs, Index: g.xs, Scale: 2}, g.upper)
		g.ADDQ(g.x, g.upper)
	}
}

// row is where row r of the weight goes on.
func (g *blockGenerator) row(r int) Mem {
	return [blockRows]Mem{{Base: g.w}, {Base: g.w, Index: g.ws, Scale: 1}, {Base: g.w, Index: g.ws, Scale: 2}, {Base: g.w, Index: g.ws3, Scale: 1}}[r]
}

// token is where row t of x goes on.
func (g *blockGenerator) token(t int) Mem {
	base := g.x
	if t >= 3 {
		base, t = g.upper, t-3
	}
	return [3]Mem{{Base: base}, {Base: base, Index: g.xs, Scale: 1}, {Base: base, Index: g.xs, Scale: 2}}[t]
}

func (g *blockGenerator) vector() reg.VecVirtual {
	if g.set.lanes == 16 {
		return g.ZMM()
	}
	return g.YMM()
}

func (g *blockGenerator) zero(v reg.VecVirtual) {
	if g.set.lanes == 16 {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
}

// reduce adds the lanes of the sums: a vector for each token, with a lane per row.
func (g *blockGenerator) reduce(sums [][blockRows]reg.VecVirtual) []reg.VecVirtual {
	var out []reg.VecVirtual
	for _, token := range sums {
		var quarter [blockRows]reg.VecVirtual
		for r, s := range token {
			quarter[r] = g.quarter(s)
		}
		out = append(out, g.transposed(quarter))
	}
	return out
}

// quarter adds the upper half to the lower until four lanes are left.
func (g *blockGenerator) quarter(s reg.VecVirtual) reg.VecVirtual {
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
func (g *blockGenerator) transposed(v [blockRows]reg.VecVirtual) reg.VecVirtual {
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

func (g *blockGenerator) store(sums []reg.VecVirtual) {
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
