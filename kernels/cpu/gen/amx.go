package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amx generates the product of weights in bf16 with x in f32: x is taken apart into
// bf16, once per call, and tiles multiply. Go's scheduler never stops a goroutine in
// assembly, and the system keeps tiles when it stops a thread, so that no other thread sees
// them between LDTILECFG and TILERELEASE, which are in one function.
func amx(c *build.Context) {
	largest(c)
	rowsToTiles(c)
	turn(c)
	(&pack{Context: c, parts: 3}).weights()
	(&multiply{tiles{c}, 3, 3, 2, 2}).function()
	tilePeak(tiles{c})
	for _, s := range []struct {
		suffix string
		parts  int
	}{{"3", 3}, {"1", 1}} {
		p := &pack{Context: c, parts: s.parts}
		p.tokens("amxPack" + s.suffix)
		p.token("amxPackOne" + s.suffix)
		for tokens := range 2 {
			(&multiply{tiles{c}, 1, s.parts, 1 + tokens, 1}).function()
		}
		(&multiply{tiles{c}, 1, s.parts, 2, 2}).function()
	}
}

// all is a vector that has a number in each lane.
func all(c *build.Context, bits uint32) reg.VecVirtual {
	r, v := c.GP32(), c.ZMM()
	c.MOVL(U32(bits), r)
	c.VPBROADCASTD(r, v)
	return v
}

// first sets the lowest n of 64 bits, or as many of them as most are, in a general register.
func first(c *build.Context, n reg.Register, most int) reg.GPVirtual {
	count, bits := c.GP64(), c.GP64()
	c.MOVQ(U32(most), count)
	c.CMPQ(n, count)
	c.CMOVQLT(n, count)
	c.MOVQ(I32(-1), bits)
	c.BZHIQ(count, bits, bits)
	return bits
}

func largest(c *build.Context) {
	function(c, "amxLargest", "(x *float32, k int) uint32", "amxLargest is the bits of the largest absolute value of x[:k]; any NaN is larger than all numbers.")
	x, k := c.Load(c.Param("x"), c.GP64()), c.Load(c.Param("k"), c.GP64())
	most, sign, mask := c.ZMM(), all(c, 0x7fffffff), c.K()
	c.VPXORD(most, most, most)
	c.Label("next")
	c.KMOVW(first(c, k, 16).As32(), mask)
	v := c.ZMM()
	c.VMOVUPS_Z(Mem{Base: x}, mask, v)
	c.VPANDD(sign, v, v)
	c.VPMAXUD(v, most, most)
	c.ADDQ(U8(64), x)
	c.SUBQ(U8(16), k)
	c.JGT(LabelRef("next"))
	half, quarter := c.YMM(), c.XMM()
	c.VEXTRACTI64X4(U8(1), most, half)
	c.VPMAXUD(most.AsY(), half, half)
	c.VEXTRACTI128(U8(1), half, quarter)
	c.VPMAXUD(half.AsX(), quarter, quarter)
	pair := c.XMM()
	for _, order := range []uint8{0x4e, 0xb1} {
		c.VPSHUFD(U8(order), quarter, pair)
		c.VPMAXUD(pair, quarter, quarter)
	}
	out := c.GP32()
	c.VMOVD(quarter, out)
	c.VZEROUPPER()
	c.Store(out, c.ReturnIndex(0))
	c.RET()
}

// rowsToTiles copies rows of weights to where tiles are read faster than from rows that do
// not begin with a line of the cache.
func rowsToTiles(c *build.Context) {
	function(c, "amxTiles", "(w *uint16, ws, k, rows int, to *byte)",
		"amxTiles copies 32 rows of weights, or fewer: of each 32 of the k elements those of all rows, and zeros behind the last.")
	w, ws, k := c.Load(c.Param("w"), c.GP64()), c.Load(c.Param("ws"), c.GP64()), c.Load(c.Param("k"), c.GP64())
	rows, to := c.Load(c.Param("rows"), c.GP64()), c.Load(c.Param("to"), c.GP64())
	c.ADDQ(ws, ws)
	c.Label("row")
	from, at, left := c.GP64(), c.GP64(), c.GP64()
	mask, v := c.K(), c.ZMM()
	c.MOVQ(w, from)
	c.MOVQ(to, at)
	c.MOVQ(k, left)
	c.Label("next")
	c.KMOVD(first(c, left, 32).As32(), mask)
	c.VMOVDQU16_Z(Mem{Base: from}, mask, v)
	c.VMOVDQU32(v, Mem{Base: at})
	c.ADDQ(U8(64), from)
	c.ADDQ(U32(2048), at)
	c.SUBQ(U8(32), left)
	c.JGT(LabelRef("next"))
	c.ADDQ(ws, w)
	c.ADDQ(U8(64), to)
	c.DECQ(rows)
	c.JNZ(LabelRef("row"))
	c.VZEROUPPER()
	c.RET()
}

// tilePeak is a loop of products alone, to compare with.
func tilePeak(c tiles) {
	const sums = 6
	function(c.Context, "amxPeak", "(work *byte, n int)", fmt.Sprintf("amxPeak multiplies %d n times two tiles.", sums))
	c.Load(c.Param("work"), work)
	n := c.Load(c.Param("n"), c.GP64())
	c.config(work)
	for t := range 8 {
		c.zero(t)
	}
	c.Label("next")
	for t := range sums {
		c.dot(t, 6, 7)
	}
	c.DECQ(n)
	c.JNZ(LabelRef("next"))
	c.release()
	c.RET()
}
