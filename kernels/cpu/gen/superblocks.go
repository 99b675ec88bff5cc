package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// superblocks generates what widens a block of 256 weights of 4 to 6 bits whose scales are in f32
// already, and 32 weights whose codes stand for levels: 8 numbers at a time, with the roundings of
// package graph.
func superblocks(c *build.Context) {
	g := &superGenerator{vec: newVec(c, avx2)}
	g.nibbles("widenQ4K", 16, 0)
	g.nibbles("widenQ5K", 48, 16)
	g.sixes()
	g.codes("widenFours", q4x0, 0)
	g.codes("widenFoursOff", q4x1, 0)
	g.codes("widenFives", q5x0, 0)
	g.codes("widenFivesOff", q5x1, 0)
	g.codes("widenScaled", coded{size: 16}, 1)
	g.codes("widenHalves", coded{size: 16}, 2)
}

// superGenerator is of one function at a time.
type superGenerator struct {
	*vec
	to, block, scales reg.Register
	ones              vector
}

func (g *superGenerator) superblock(name, doc string) {
	g.function(name, "(to *float32, block *byte, scales *float32)", doc)
	g.begin()
}

func (g *superGenerator) begin() {
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
	g.superblock(name, "widens a block of 256 by 8 scales and 8 minima.")
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
	g.superblock("widenQ6K", "widens a block of 256 by 16 scales.")
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

// codes widens n blocks of 32 elements, of package cpu's struct codes, which has the least number
// where a block has none. Of 1 or 2 scaled parts a block takes its scales from struct codes, one
// after another.
func (g *superGenerator) codes(name string, l coded, scaled int) {
	g.function(name, "(to *float32, block *byte, n int, scales *float32)", "widens n times 32 codes by a struct codes.")
	g.begin()
	n := g.param("n")
	f16 := blockGenerator{vec: g.vec}
	if scaled == 0 {
		f16.scales()
	}
	four, one := g.low(4), g.low(1)
	var levels [2]vector
	for i := range levels {
		levels[i] = g.YMM()
		g.VMOVUPS(Mem{Base: g.scales, Disp: 32 * i}, levels[i])
	}
	lanes, high, least := g.YMM(), g.YMM(), g.scale(24)
	g.VMOVDQU(Mem{Base: g.scales, Disp: 64}, lanes)
	g.Label("block")
	var scales [2]vector // of the lower and of the upper halves of bytes
	switch scaled {
	case 0:
		scales[0] = g.YMM()
		g.VBROADCASTSS(f16.scale(Mem{Base: g.block}), scales[0])
	case 2:
		scales[1] = g.scale(26)
		fallthrough
	case 1:
		scales[0] = g.scale(25)
		g.ADDQ(U8(uint8(4*scaled)), g.scales)
	}
	if scales[1] == nil {
		scales[1] = scales[0]
	}
	if l.least > 0 {
		g.VBROADCASTSS(f16.scale(Mem{Base: g.block, Disp: l.least}), least)
	}
	if l.high > 0 {
		g.VPBROADCASTD(Mem{Base: g.block, Disp: l.high}, high)
	}
	for i := 0; i < 16; i += 8 {
		q := g.bytes(l.codes + i)
		for half := range 2 {
			code, low, v := g.bits(q, four, 4*half, 0), g.YMM(), g.YMM()
			g.VPERMPS(levels[0], code, low)
			g.VPERMPS(levels[1], code, v)
			g.VPSLLD(U8(28), code, code) // its fourth bit is the sign
			g.VBLENDVPS(code, v, low, v)
			if l.high > 0 {
				upper := g.YMM()
				g.VPSRLVD(lanes, high, upper)
				upper = g.bits(upper, one, 16*half+i, 4)
				g.VCVTDQ2PS(upper, upper)
				g.VADDPS(upper, v, v)
			}
			g.VMULPS(scales[half], v, v)
			g.VADDPS(least, v, v)
			g.VMOVUPS(v, Mem{Base: g.to, Disp: 4 * (16*half + i)})
		}
	}
	g.ADDQ(U32(128), g.to)
	g.ADDQ(U8(uint8(l.size)), g.block)
	g.DECQ(n)
	g.JNZ(LabelRef("block"))
	g.end()
}
