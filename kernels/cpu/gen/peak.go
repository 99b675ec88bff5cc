package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	peakLoads = 8  // vectors that are read in a turn, of all places
	peakSums  = 12 // multiplications in flight: more than any processor begins before the first ends
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

// read goes on at four places, a quarter apart: a processor asks memory for more of
// several streams at once than of one.
func (g *generator) read(name string) {
	const places = 4
	size := g.set.lanes * 4
	bytes := peakLoads * size
	g.begin(name, "func(data *byte, n int)", fmt.Sprintf("%s reads n bytes, a multiple of %d and not 0, at %d places.", name, bytes, places))
	data, n := g.Load(g.Param("data"), g.GP64()), g.Load(g.Param("n"), g.GP64())
	quarter, last := g.GP64(), g.GP64()
	g.MOVQ(n, quarter)
	g.SHRQ(U8(2), quarter)
	g.LEAQ(Mem{Base: quarter, Index: quarter, Scale: 2}, last)
	at := [places]Mem{{Base: data}, {Base: data, Index: quarter, Scale: 1}, {Base: data, Index: quarter, Scale: 2}, {Base: data, Index: last, Scale: 1}}
	g.Label("turn")
	for i := range peakLoads {
		from := at[i%places]
		from.Disp = i / places * size
		g.VMOVUPS(from, g.vector())
	}
	g.ADDQ(U32(uint32(bytes/places)), data)
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
