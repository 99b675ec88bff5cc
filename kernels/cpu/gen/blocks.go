package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	blockLen   = 32
	blockBytes = 2 + blockLen // a scale in f16 before it
)

// blocks generates what widens weights in blocks of 8-bit numbers to what they are
// exactly in f32, and for AVX-512 with integer products a tile that does so on its way.
//
// There a product with 0 and 1 takes a byte of each 32 bits and adds it to bits that
// are then 3·2²² and the number in f32; (3·2²² + q)·s - 3·2²²·s is q·s, since all of
// these are exact. That is 2 instructions for 16 weights, and 3 were there widening,
// converting and multiplying. Every fourth byte is not the next: the weights of a block
// come in another order, into which spread brings the activations.
func blocks(c *build.Context) {
	g := &blockGenerator{vec: newVec(c, avx512)}
	g.widenAVX2()
	g.widenAVX512()
	g.spread()
	for tokens := range avx512.tokens {
		g.tile(1 + tokens)
	}
}

// blockGenerator is of one function at a time.
type blockGenerator struct {
	*vec
	bias      vector    // 3·2²² in f32
	every     [2]vector // of 4 bytes, the ones that go to a vector's lanes
	table, at reg.GPVirtual
}

const biasBits = 0x4B400000

// order and lanes are constants in the order of blocks: element 4·i + j is in lane i of quarter j.
func (g *blockGenerator) order() Mem {
	return g.data(constant{1, 128}, "blockOrder", func(lane int) (Constant, bool) { return U32(uint32(lane%8*4 + lane/8)), lane < blockLen })
}

func (g *blockGenerator) lanes() Mem {
	return g.data(constant{2, 128}, "blockBytes", func(lane int) (Constant, bool) { return U32(1 << (8 * (lane / 8))), lane < blockLen })
}

// scales is the table of package cpu: for each f16 what it is in f32, and that times
// -3·2²².
func (g *blockGenerator) scales() {
	g.table, g.at = g.GP64(), g.GP64()
	g.LEAQ(Mem{Symbol: Symbol{Name: "·blockScales"}, Base: reg.StaticBase}, g.table)
}

// scale is the table's entry for the block at an address.
func (g *blockGenerator) scale(block Mem) Mem {
	at := g.GP64()
	g.MOVWLZX(block, at.As32())
	return Mem{Base: g.table, Index: at, Scale: 8}
}

func (g *blockGenerator) widenAVX2() {
	newVec(g.Context, avx2).function("widenBlocks", "(to *float32, from *byte, n int)", "widens n blocks.")
	to, from, n := g.param("to"), g.param("from"), g.param("n")
	g.scales()
	g.Label("block")
	s := g.YMM()
	g.VBROADCASTSS(g.scale(Mem{Base: from}), s)
	for i := 0; i < blockLen; i += 8 {
		w := g.YMM()
		g.VPMOVSXBD(Mem{Base: from, Disp: 2 + i}, w)
		g.VCVTDQ2PS(w, w)
		g.VMULPS(s, w, w)
		g.VMOVUPS(w, Mem{Base: to, Disp: 4 * i})
	}
	g.ADDQ(U8(blockBytes), from)
	g.ADDQ(U32(4*blockLen), to)
	g.DECQ(n)
	g.JNZ(LabelRef("block"))
	g.end()
}

// numbers sets up what weights takes.
func (g *blockGenerator) numbers() {
	g.scales()
	bits := g.GP32()
	g.bias = g.ZMM()
	g.MOVL(U32(biasBits), bits)
	g.VPBROADCASTD(bits, g.bias)
	for i := range g.every {
		g.every[i] = g.ZMM()
		g.VMOVDQU64(g.lanes().Offset(64*i), g.every[i])
	}
}

// weights are a half of a block's in f32.
func (g *blockGenerator) weights(block, scale Mem, half int) vector {
	bytes, s, w := g.ZMM(), g.ZMM(), g.ZMM()
	g.VMOVDQA64(g.bias, w)
	g.VBROADCASTI64X4(block.Offset(2), bytes)
	g.VPDPBUSD(bytes, g.every[half], w)
	g.VBROADCASTSS(scale, s)
	g.VFMADD213PS_BCST(scale.Offset(4), s, w)
	return w
}

func (g *blockGenerator) widenAVX512() {
	g.function("widenBlocks", "(to *float32, from *byte, n int)", "widens n blocks, each in the order of spreadBlocksAVX512.")
	to, from, n := g.param("to"), g.param("from"), g.param("n")
	g.numbers()
	g.Label("block")
	scale := g.scale(Mem{Base: from})
	for half := range 2 {
		g.VMOVUPS(g.weights(Mem{Base: from}, scale, half), Mem{Base: to, Disp: 64 * half})
	}
	g.ADDQ(U8(blockBytes), from)
	g.ADDQ(U32(4*blockLen), to)
	g.DECQ(n)
	g.JNZ(LabelRef("block"))
	g.end()
}

// spread brings activations into the order of the weights.
func (g *blockGenerator) spread() {
	g.function("spreadBlocks", "(to, from *float32, n int)", "brings n blocks of 32 activations into the order of a block's weights:",
		"every fourth, from the first on, from the second, the third and the last. To may be from.")
	to, from, n := g.param("to"), g.param("from"), g.param("n")
	var order [2]vector
	for i := range order {
		order[i] = g.ZMM()
		g.VMOVDQU64(g.order().Offset(64*i), order[i])
	}
	g.Label("block")
	var x, y [2]vector
	for i := range x {
		x[i], y[i] = g.ZMM(), g.ZMM()
		g.VMOVUPS(Mem{Base: from, Disp: 64 * i}, x[i])
	}
	for i := range y {
		g.VMOVDQA64(order[i], y[i])
		g.VPERMI2PS(x[1], x[0], y[i])
	}
	for i := range y {
		g.VMOVUPS(y[i], Mem{Base: to, Disp: 64 * i})
	}
	g.ADDQ(U32(4*blockLen), from)
	g.ADDQ(U32(4*blockLen), to)
	g.DECQ(n)
	g.JNZ(LabelRef("block"))
	g.end()
}

// tile is a tile of 4 rows of weights with some of x, as gemm generates it for other
// formats: its sums have the order of those of widened weights.
func (g *blockGenerator) tile(tokens int) {
	t := newTile(g.Context, avx512, format{Name: "Q8", Element: "byte", Size: 1}, 4, tokens)
	t.declare()
	t.SHLQ(U8(1), t.memory("step")) // a block has two vectors
	t.Label("group")
	t.nextTokens()
	g.numbers() // which reduce has no registers for
	sums := t.sums()
	k := t.param("k")
	t.Label("block")
	x := g.tokens(t)
	for r := range t.rows {
		row := t.w.at(r)
		scale := g.scale(row)
		for half := range x {
			w := g.weights(row, scale, half)
			for i := range tokens {
				t.multiplyAdd(x[half][i], w, sums[i][r])
			}
		}
	}
	t.fetchAhead()
	t.w.move(t.ADDQ, U8(blockBytes))
	t.x.move(t.ADDQ, U32(4*blockLen))
	t.SUBQ(U8(blockLen), k)
	t.JNZ(LabelRef("block"))
	t.store(t.reduce(sums))
	back := t.stride("k")
	t.x.move(t.SUBQ, back)
	t.SHRQ(U8(7), back)
	t.IMUL3Q(U8(blockBytes), back, back)
	t.w.move(t.SUBQ, back)
	t.nextGroup()
}

// tokens are vectors of x, by half of a block: as many as registers allow, beside
// the sums, three constants and three that weights take, and others in memory.
func (g *blockGenerator) tokens(t *gemmTile) (x [2][]Op) {
	left := 32 - 6 - 4*t.tokens
	for half := range x {
		for i := range t.tokens {
			at := t.x.at(i).Offset(64 * half)
			if left--; left < 0 {
				x[half] = append(x[half], at)
				continue
			}
			v := t.new()
			t.VMOVUPS(at, v)
			x[half] = append(x[half], v)
		}
	}
	return x
}
