package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// norm generates sums of squares in float64. Their order is that of the row alone: four
// vectors are summed by themselves, the first two and the last two being the halves of
// neighbouring f32 vectors.
func norm(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := newVec(c, set)
		g.function("squares", "(x *float32, n int) (sum float64)", "sums the squares of n elements in float64.")
		x, n := g.param("x"), g.param("n")
		sums := []vector{g.zero(), g.zero(), g.zero(), g.zero()}
		add := func(v vector, to []vector) {
			for half := range 2 {
				d := g.double(v, half)
				g.VFMADD231PD(d, d, to[half])
			}
		}
		for _, vectors := range []int{2, 1} {
			part, all := g.label("part"), g.label("vectors")
			g.SUBQ(U8(vectors*set.lanes), n)
			g.JLT(LabelRef(part))
			g.Label(all)
			for i := range vectors {
				add(g.load(Mem{Base: x, Disp: i * g.bytes()}, nil), sums[2*i:])
			}
			g.ADDQ(U8(vectors*g.bytes()), x)
			g.SUBQ(U8(vectors*set.lanes), n)
			g.JGE(LabelRef(all))
			g.Label(part)
			g.ADDQ(U8(vectors*set.lanes), n)
		}
		g.JZ(LabelRef("done"))
		t := g.tail(n)
		add(g.load(Mem{Base: x}, &t), sums[2:])
		g.Label("done")
		d := doubles{g}
		sum := d.add(d.add(sums[0], sums[1]), d.add(sums[2], sums[3]))
		half := g.YMM()
		if g.wide() {
			g.VEXTRACTF64X4(U8(1), sum, half)
			g.VADDPD(half, sum.AsY(), half)
		} else {
			g.VMOVUPS(sum, half)
		}
		pair, one := g.XMM(), g.XMM()
		g.VEXTRACTF128(U8(1), half, pair)
		g.VADDPD(pair, half.AsX(), pair)
		g.VUNPCKHPD(pair, pair, one)
		g.VADDSD(one, pair, pair)
		g.Store(pair, g.Return("sum"))
		g.end()
	}
}
