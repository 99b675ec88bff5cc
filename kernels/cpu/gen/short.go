package main

import (
	"fmt"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// short generates the products of 4 rows of weights with some rows of x whose sums are in float64:
// of vectors, and then of what is left of k, one by one. Many rows of x go past panels.
func short(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		of := func(f format, tokens int) *product {
			return &product{vec: newVec(c, set), format: f, rows: 4, tokens: tokens, f64: true}
		}
		of(f32, 1).pack()
		for _, f := range formats {
			for _, n := range []int{1, 3, 6} {
				if n <= set.tokens {
					of(f, n).short()
				}
			}
		}
		(&shortPanel{product: of(f32, 6)}).write()
	}
}

// pack generates what widens whole vectors of a row of x, and puts them apart.
func (g *product) pack() {
	g.function("packShort", "(to *float64, from *float32, n, apart int)",
		fmt.Sprintf("widens n vectors of %d elements, and writes them apart elements apart.", g.lanes()))
	to, from := g.param("to"), g.param("from")
	n, apart := g.param("n"), g.param("apart")
	g.SHLQ(U8(3), apart)
	g.TESTQ(n, n)
	g.JZ(LabelRef("done"))
	g.Label("vectors")
	g.VMOVUPD(g.loaded(f32, Mem{Base: from}, nil), Mem{Base: to})
	g.ADDQ(Imm(uint64(4*g.lanes())), from)
	g.ADDQ(apart, to)
	g.DECQ(n)
	g.JNZ(LabelRef("vectors"))
	g.Label("done")
	g.end()
}

func (g *product) short() {
	name, signature, doc := common.Short(g.format, g.set.name, g.tokens)
	g.function(name, signature, doc)
	ws := g.strideOf(g.format, "ws")
	g.w = g.fourLines(g.param("w"), ws)
	g.x = lines{base: g.param("x"), packed: 8 * g.lanes()}
	k := g.param("k")
	sums := g.reduce(g.vectors(k, func() {}))
	g.elements(sums, k)
	g.put(sums, ws)
	g.end()
}

// elements adds the rest of k, an element of the four rows at a time.
func (g *product) elements(sums []vector, k reg.Register) {
	g.TESTQ(k, k)
	g.JZ(LabelRef("done"))
	g.Label("tail")
	w := g.column()
	for t, s := range sums {
		wide := g.YMM()
		if g.packed() {
			g.VBROADCASTSD(Mem{Base: g.x.base, Disp: 8 * t}, wide)
		} else {
			x := g.XMM()
			g.VBROADCASTSS(Mem{Base: g.x.base}, x)
			g.VCVTPS2PD(x, wide)
		}
		g.VFMADD231PD(w, wide, s)
	}
	g.advance(1)
	g.DECQ(k)
	g.JNZ(LabelRef("tail"))
	g.Label("done")
}

// column loads an element of each row. A bf16 goes to the upper half of its lane.
func (g *product) column() vector {
	w, wide := g.XMM(), g.YMM()
	g.VPXOR(w, w, w)
	for r := range 4 {
		switch g.format {
		case f32:
			g.VINSERTPS(U8(r<<4), g.w.at(r), w, w)
		case bf16:
			g.VPINSRW(U8(2*r+1), g.w.at(r), w, w)
		case f16:
			g.VPINSRW(U8(r), g.w.at(r), w, w)
		}
	}
	if g.format == f16 {
		g.VCVTPH2PS(w, w)
	}
	g.VCVTPS2PD(w, wide)
	return wide
}

// put writes the sums, of rows that are one only the first.
func (g *product) put(sums []vector, ws reg.Register) {
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
