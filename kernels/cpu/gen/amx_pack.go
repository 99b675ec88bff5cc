package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pack takes x apart: a step of 32 elements becomes a tile per part, which has a row
// for each pair of elements, with the pair of each token.
type pack struct {
	*build.Context
	parts int

	upper    reg.VecVirtual // the 16 bits that are a bf16
	one, mid reg.VecVirtual // to round with
}

func (p *pack) constants() {
	p.upper = all(p.Context, 0xffff0000)
	if p.parts == 1 {
		p.one, p.mid = all(p.Context, 1), all(p.Context, 0x7fff)
	}
}

// split takes numbers apart. Three parts are cut off, so that each is exact and has the
// sign of the number, and their sum is it; one is rounded to the nearest.
func (p *pack) split(v reg.VecVirtual) []reg.VecVirtual {
	if p.parts == 1 {
		odd := p.ZMM()
		p.VPSRLD(U8(16), v, odd)
		p.VPANDD(p.one, odd, odd)
		p.VPADDD(p.mid, odd, odd)
		p.VPADDD(odd, v, v)
		p.VPANDD(p.upper, v, v)
		return []reg.VecVirtual{v}
	}
	hi, mid := p.ZMM(), p.ZMM()
	p.VPANDD(p.upper, v, hi)
	p.VSUBPS(hi, v, v)
	p.VPANDD(p.upper, v, mid)
	p.VSUBPS(mid, v, v)
	return []reg.VecVirtual{hi, mid, v}
}

func (p *pack) tokens(name string) {
	function(p.Context, name, "(x *float32, rows *[16]int, scale *[16]float32, k int, to *byte, n int)",
		fmt.Sprintf("%s writes tiles of n tokens in %d parts, times 2^scale. The rows are some bytes behind x; there are 16, of which those from n on are not used.", name, p.parts))
	x, rows, k := p.Load(p.Param("x"), p.GP64()), p.Load(p.Param("rows"), p.GP64()), p.Load(p.Param("k"), p.GP64())
	to, n := p.Load(p.Param("to"), p.GP64()), p.Load(p.Param("n"), p.GP64())
	scale := p.ZMM()
	at := p.Load(p.Param("scale"), p.GP64())
	p.VMOVUPS(Mem{Base: at}, scale)
	lanes := p.K()
	p.KMOVW(first(p.Context, n, 16).As32(), lanes)
	row, tile, back := n, p.GP64(), p.GP64() // bytes of them
	p.SHLQ(U8(2), row)
	p.MOVQ(row, tile)
	p.SHLQ(U8(4), tile)
	p.MOVQ(tile, back)
	p.SHRQ(U8(1), back)
	p.constants()
	p.Label("step")
	kept := first(p.Context, k, 32)
	mask := p.K()
	p.KMOVW(kept.As32(), mask)
	p.half(0, x, rows, to, row, tile, scale, mask, lanes)
	p.SHRQ(U8(16), kept)
	p.KMOVW(kept.As32(), mask)
	p.half(64, x, rows, to, row, tile, scale, mask, lanes)
	p.ADDQ(U8(128), x)
	for range p.parts - 1 {
		p.ADDQ(tile, to) // half of it already is behind
	}
	p.SUBQ(U8(32), k)
	p.JGT(LabelRef("step"))
	p.VZEROUPPER()
	p.RET()
}

// half writes the tiles' rows of 16 elements, and moves to behind those of the first tile.
func (p *pack) half(offset int, x, rows, to, row, tile reg.Register, scale reg.VecVirtual, mask, lanes reg.Register) {
	var v []reg.VecVirtual
	for t := range 16 {
		at, z := p.GP64(), p.ZMM()
		p.MOVQ(Mem{Base: rows, Disp: 8 * t}, at)
		p.VMOVUPS_Z(Mem{Base: x, Index: at, Scale: 1, Disp: offset}, mask, z)
		v = append(v, z)
	}
	v = transposed16(p.Context, v)
	for i := 0; i < 16; i += 2 {
		p.VSCALEFPS(scale, v[i], v[i])
		p.VSCALEFPS(scale, v[i+1], v[i+1])
		even, odd := p.split(v[i]), p.split(v[i+1])
		at := p.GP64()
		p.MOVQ(to, at)
		for part := range even {
			if part > 0 {
				p.ADDQ(tile, at)
			}
			p.VPSRLD(U8(16), even[part], even[part])
			p.VPTERNLOGD(U8(0xf8), p.upper, odd[part], even[part]) // even | odd & upper: the last part may have bits below
			p.VMOVDQU32(even[part], lanes, Mem{Base: at})
		}
		p.ADDQ(row, to)
	}
}

// token is tokens for a single one, whose tiles are its parts as they are.
func (p *pack) token(name string) {
	function(p.Context, name, "(x *float32, scale float32, k int, to *byte)",
		fmt.Sprintf("%s writes the tiles of one token in %d parts, times 2^scale.", name, p.parts))
	x, k, to := p.Load(p.Param("x"), p.GP64()), p.Load(p.Param("k"), p.GP64()), p.Load(p.Param("to"), p.GP64())
	low, scale := p.Load(p.Param("scale"), p.XMM()), p.ZMM()
	p.VBROADCASTSS(low.(reg.VecVirtual), scale)
	p.constants()
	p.Label("step")
	p.halves(x, k, scale, func(h, part int) Mem { return Mem{Base: to, Disp: 64*part + 32*h} })
	p.ADDQ(U8(128), x)
	p.ADDQ(Imm(uint64(64*p.parts)), to)
	p.SUBQ(U8(32), k)
	p.JGT(LabelRef("step"))
	p.VZEROUPPER()
	p.RET()
}

// weights copies rows of weights in f32, as amxTiles does those in bf16.
func (p *pack) weights() {
	function(p.Context, "amxTilesF32", "(w *float32, ws, k, rows int, to *byte)",
		"amxTilesF32 is amxTiles for weights in f32: of each 32 elements there are the tiles of each of 3 parts.")
	w, ws, k := p.Load(p.Param("w"), p.GP64()), p.Load(p.Param("ws"), p.GP64()), p.Load(p.Param("k"), p.GP64())
	rows, to := p.Load(p.Param("rows"), p.GP64()), p.Load(p.Param("to"), p.GP64())
	p.SHLQ(U8(2), ws)
	p.constants()
	p.Label("row")
	from, at, left := p.GP64(), p.GP64(), p.GP64()
	p.MOVQ(w, from)
	p.MOVQ(to, at)
	p.MOVQ(k, left)
	p.Label("step")
	p.halves(from, left, nil, func(h, part int) Mem { return Mem{Base: at, Disp: 2048*part + 32*h} })
	p.ADDQ(U8(128), from)
	p.ADDQ(U32(2048*3), at)
	p.SUBQ(U8(32), left)
	p.JGT(LabelRef("step"))
	p.ADDQ(ws, w)
	p.ADDQ(U8(64), to)
	p.DECQ(rows)
	p.JNZ(LabelRef("row"))
	p.VZEROUPPER()
	p.RET()
}

// halves takes 32 elements apart, or as many as are left, times 2^scale.
func (p *pack) halves(x, left reg.Register, scale Op, to func(h, part int) Mem) {
	kept := first(p.Context, left, 32)
	for h := range 2 {
		mask, v := p.K(), p.ZMM()
		if h > 0 {
			p.SHRQ(U8(16), kept)
		}
		p.KMOVW(kept.As32(), mask)
		p.VMOVUPS_Z(Mem{Base: x, Disp: 64 * h}, mask, v)
		if scale != nil {
			p.VSCALEFPS(scale, v, v)
		}
		for i, part := range p.split(v) {
			p.VPSRLD(U8(16), part, part)
			p.VPMOVDW(part, to(h, i))
		}
	}
}

// transposed16 makes columns of the rows of a square.
func transposed16(c *build.Context, r []reg.VecVirtual) []reg.VecVirtual {
	type op func(...Op)
	pair := func(a, b reg.VecVirtual, lo, hi op) (x, y reg.VecVirtual) {
		x, y = c.ZMM(), c.ZMM()
		lo(b, a, x)
		hi(b, a, y)
		return x, y
	}
	blocks := func(a, b reg.VecVirtual) (even, odd reg.VecVirtual) {
		even, odd = c.ZMM(), c.ZMM()
		c.VSHUFF32X4(U8(0x88), b, a, even)
		c.VSHUFF32X4(U8(0xdd), b, a, odd)
		return even, odd
	}
	var quads [16]reg.VecVirtual // each block of one has a column of four rows
	for g := 0; g < 16; g += 4 {
		a, b := pair(r[g], r[g+1], c.VUNPCKLPS, c.VUNPCKHPS)
		d, e := pair(r[g+2], r[g+3], c.VUNPCKLPS, c.VUNPCKHPS)
		quads[g], quads[g+1] = pair(a, d, c.VUNPCKLPD, c.VUNPCKHPD)
		quads[g+2], quads[g+3] = pair(b, e, c.VUNPCKLPD, c.VUNPCKHPD)
	}
	out := make([]reg.VecVirtual, 16)
	for j := range 4 {
		a, b := blocks(quads[j], quads[4+j])
		d, e := blocks(quads[8+j], quads[12+j])
		out[j], out[8+j] = blocks(a, d)
		out[4+j], out[12+j] = blocks(b, e)
	}
	return out
}
