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
			g.loop("vectors", n, vectors*set.lanes, func() {
				for i := range vectors {
					add(g.load(Mem{Base: x, Disp: i * g.bytes()}, nil), sums[2*i:])
				}
				g.ADDQ(U8(vectors*g.bytes()), x)
			})
		}
		g.JZ(LabelRef("done"))
		t := g.tail(n)
		add(g.load(Mem{Base: x}, &t), sums[2:])
		g.Label("done")
		d := doubles{g}
		sum := d.add(d.add(sums[0], sums[1]), d.add(sums[2], sums[3]))
		g.Store(g.across(sum, g.VADDPD, 64), g.Return("sum"))
		g.end()
	}
}
