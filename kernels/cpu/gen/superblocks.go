package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// superblocks generates what widens a block of 256 weights of 4 to 6 bits whose scales are in f32
// already: 8 numbers at a time, with the roundings of package graph.
func superblocks(c *build.Context) {
	g := &superGenerator{vec: newVec(c, avx2)}
	g.nibbles("widenQ4K", 16, 0)
	g.nibbles("widenQ5K", 48, 16)
	g.sixes()
}

// superGenerator is of one function at a time.
type superGenerator struct {
	*vec
	to, block, scales reg.Register
	ones              vector
}

func (g *superGenerator) begin(name, doc string) {
	g.function(name, "(to *float32, block *byte, scales *float32)", doc)
	g.to, g.block, g.scales = g.param("to"), g.param("block"), g.param("scales")
	g.ones = g.YMM()
	g.VPCMPEQD(g.ones, g.ones, g.ones)
}

// low is the mask of some bits of a lane.
func (g *superGenerator) low(bits int) vector {
	m := g.YMM()
	g.VPSRLD(U8(32-bits), g.ones, m)
	return m
}

// bytes are 8 bytes of the block, in 32 bits each.
func (g *superGenerator) bytes(at int) vector {
	v := g.YMM()
	g.VPMOVZXBD(Mem{Base: g.block, Disp: at}, v)
	return v
}

func (g *superGenerator) scale(i int) vector {
	s := g.YMM()
	g.VBROADCASTSS(Mem{Base: g.scales, Disp: 4 * i}, s)
	return s
}

// bits are those of v from one on, of a mask's number, and left of those from another one on.
func (g *superGenerator) bits(v, mask vector, from, left int) vector {
	out := g.YMM()
	if from > 0 {
		g.VPSRLD(U8(from), v, out)
		v = out
	}
	g.VPAND(mask, v, out)
	if left > 0 {
		g.VPSLLD(U8(left), out, out)
	}
	return out
}

// nibbles: scales are 8 scales and 8 minima; the fifth bits of numbers, if there are any, are in 32
// bytes from high on.
func (g *superGenerator) nibbles(name string, low, high int) {
	g.begin(name, "widens a block of 256 by 8 scales and 8 minima.")
	four, one := g.low(4), g.low(1)
	for pair := range 4 {
		var s, m [2]vector
		for half := range 2 {
			s[half], m[half] = g.scale(2*pair+half), g.scale(8+2*pair+half)
		}
		for i := 0; i < 32; i += 8 {
			q := g.bytes(low + 32*pair + i)
			for half := range 2 {
				part := 2*pair + half
				v := g.bits(q, four, 4*half, 0)
				if high > 0 {
					g.VPOR(g.bits(g.bytes(high+i), one, part, 4), v, v)
				}
				g.VCVTDQ2PS(v, v)
				g.VMULPS(s[half], v, v)
				g.VSUBPS(m[half], v, v)
				g.VMOVUPS(v, Mem{Base: g.to, Disp: 4 * (32*part + i)})
			}
		}
	}
	g.end()
}

// sixes: 16 scales.
func (g *superGenerator) sixes() {
	g.begin("widenQ6K", "widens a block of 256 by 16 scales.")
	four, two, middle := g.low(4), g.low(2), g.YMM()
	g.VPSRLD(U8(31), g.ones, middle)
	g.VPSLLD(U8(5), middle, middle) // 32
	for n := range 2 {
		for i := 0; i < 32; i += 8 {
			low := [2]vector{g.bytes(64*n + i), g.bytes(64*n + 32 + i)}
			high := g.bytes(128 + 32*n + i)
			for k := range 4 {
				v := g.bits(low[k%2], four, k/2*4, 0)
				g.VPOR(g.bits(high, two, 2*k, 4), v, v)
				g.VPSUBD(middle, v, v)
				g.VCVTDQ2PS(v, v)
				g.VMULPS(g.scale(8*n+2*k+i/16), v, v)
				g.VMOVUPS(v, Mem{Base: g.to, Disp: 4 * (128*n + 32*k + i)})
			}
		}
	}
	g.end()
}
