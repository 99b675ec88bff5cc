package main

// norm generates sums of squares in float64, in the order of AVX2 with vectors of 4.
func norm(f *file) {
	g := f.function("squares", "(x *float32, n int) (sum float64)", "sums the squares of n elements in float64.")
	x, n := g.param("x"), g.param("n")
	sums := []*register{g.zero(), g.zero(), g.zero(), g.zero()}
	add := func(v *register, to []*register) {
		for half := range 2 {
			d := g.double(v, half)
			g.fma("2d", to[half], d, d)
		}
	}
	g.loop(n, 8, func() {
		for half, v := range g.load8(f32, x) {
			add(v, sums[2*half:])
		}
	})
	g.loop(n, 1, func() {
		d := g.double(g.load(x, 4), 0)
		g.fma("2d", sums[0], d, d)
	})
	sum := g.of("fadd", "2d", g.of("fadd", "2d", sums[0], sums[1]), g.of("fadd", "2d", sums[2], sums[3]))
	g.arm("faddp d 2d", sum, sum)
	g.do("FMOVD F%d, sum+16(FP)", sum)
}
