package main

// peak generates what a core does at best.
func peak(f *file) {
	g := f.function("read", "(data *byte, n int)", "reads n bytes, a multiple of 128 and not 0.")
	data, n := g.param("data"), g.param("n")
	g.at("next")
	for range 4 {
		g.do("FLDPQ.P 32(R%d), (F%d, F%d)", data, g.new(), g.new())
	}
	g.countdown(n, 128, "BNE", "next")

	g = f.function("multiply", "(n int)", "makes n times, at least once, 24 multiplications and additions of 4 numbers.")
	n = g.param("n")
	a, sums := g.zero(), make([]*register, 24)
	for i := range sums {
		sums[i] = g.zero()
	}
	g.at("next")
	for _, s := range sums {
		g.fma("4s", s, a, a)
	}
	g.countdown(n, 1, "BNE", "next")
}
