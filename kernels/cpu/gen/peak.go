package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	peakLoads = 8  // vectors that are read in a turn
	peakSums  = 12 // multiplications under way: more than any processor begins before the first ends
)

// peak generates what an instruction set can do best: read memory, and multiply and add
// in registers.
func peak(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := &generator{Context: c, set: set}
		g.read("read" + set.name)
		g.multiply("multiply" + set.name)
	}
}

func (g *generator) begin(name, signature string, doc ...string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	g.Doc(doc...)
	g.SignatureExpr(signature)
}

func (g *generator) read(name string) {
	bytes := peakLoads * g.set.lanes * 4
	g.begin(name, "func(data *byte, n int)", fmt.Sprintf("%s reads n bytes, a multiple of %d and not 0.", name, bytes))
	data, n := g.Load(g.Param("data"), g.GP64()), g.Load(g.Param("n"), g.GP64())
	var v [peakLoads]reg.VecVirtual
	for i := range v {
		v[i] = g.vector()
	}
	g.Label("turn")
	for i := range v {
		g.VMOVUPS(Mem{Base: data, Disp: i * g.set.lanes * 4}, v[i])
	}
	g.ADDQ(U32(uint32(bytes)), data)
	g.SUBQ(U32(uint32(bytes)), n)
	g.JNZ(LabelRef("turn"))
	g.VZEROUPPER()
	g.RET()
}

func (g *generator) multiply(name string) {
	g.begin(name, "func(n int)", fmt.Sprintf("%s makes n times, at least once, %d multiplications and additions of %d numbers.", name, peakSums, g.set.lanes))
	n := g.Load(g.Param("n"), g.GP64())
	x := g.vector()
	g.zero(x)
	var sums [peakSums]reg.VecVirtual
	for i := range sums {
		sums[i] = g.vector()
		g.zero(sums[i])
	}
	g.Label("turn")
	for _, s := range sums {
		g.VFMADD231PS(x, x, s)
	}
	g.DECQ(n)
	g.JNZ(LabelRef("turn"))
	g.VZEROUPPER()
	g.RET()
}
