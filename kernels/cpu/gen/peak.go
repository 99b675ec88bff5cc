package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

const (
	peakLoads = 8  // vectors that are read in a turn, of all places
	peakSums  = 12 // multiplications in flight: more than any processor begins before the first ends
)

// peak generates what an instruction set can do best: read memory, and multiply and add
// in registers.
func peak(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := newVec(c, set)
		g.read()
		g.multiply()
	}
}

// read goes on at four places, a quarter apart: a processor asks memory for more of
// several streams at once than of one.
func (g *vec) read() {
	const places = 4
	size := g.bytes()
	bytes := peakLoads * size
	g.function("read", "(data *byte, n int)", fmt.Sprintf("reads n bytes, a multiple of %d and not 0, at %d places.", bytes, places))
	data, n := g.param("data"), g.param("n")
	quarter, last := g.GP64(), g.GP64()
	g.MOVQ(n, quarter)
	g.SHRQ(U8(2), quarter)
	g.LEAQ(Mem{Base: quarter, Index: quarter, Scale: 2}, last)
	at := strided(data, quarter, last)
	g.Label("turn")
	for i := range peakLoads {
		from := at[i%places]
		from.Disp = i / places * size
		g.VMOVUPS(from, g.new())
	}
	g.ADDQ(U32(uint32(bytes/places)), data)
	g.SUBQ(U32(uint32(bytes)), n)
	g.JNZ(LabelRef("turn"))
	g.end()
}

func (g *vec) multiply() {
	g.function("multiply", "(n int)", fmt.Sprintf("makes n times, at least once, %d multiplications and additions of %d numbers.", peakSums, g.set.lanes))
	n := g.param("n")
	x := g.zero()
	var sums [peakSums]vector
	for i := range sums {
		sums[i] = g.zero()
	}
	g.Label("turn")
	for _, s := range sums {
		g.VFMADD231PS(x, x, s)
	}
	g.DECQ(n)
	g.JNZ(LabelRef("turn"))
	g.end()
}
