package main

// convert generates what the generator for amd64 does.
func convert(f *file) {
	each := func(name, signature, doc string, step func(g *neon, x, y *register)) {
		g := f.function(name, signature, doc+" n elements, which fill vectors of 8 and are not 0.")
		g.hasConstants()
		x, y, n := g.param("x"), g.param("y"), g.param("n")
		g.at("next")
		step(g, x, y)
		g.countdown(n, 8, "BNE", "next")
	}
	for _, from := range formats[1:] {
		each("widen"+from.Name, "(y *float32, x *uint16, n int)", "widens", func(g *neon, x, y *register) {
			v := g.load8(from, x)
			g.do("FSTPQ.P (F%d, F%d), 32(R%d)", v[0], v[1], y)
		})
		each("round"+from.Name, "(y *uint16, x *float32, n int)", "rounds", func(g *neon, x, y *register) {
			v := g.load8(f32, x)
			names := []string{"fcvtn 4h 4s", "fcvtn2 8h 4s"}
			if from == bf16 {
				names = []string{"shrn 4h 4s #16", "shrn2 8h 4s #16"}
			}
			halves := g.new()
			for half := range v {
				if from == bf16 {
					v[half] = g.roundBF16(v[half])
				}
			}
			for half := range v {
				g.arm(names[half], halves, v[half])
			}
			g.put(halves, y, 16)
		})
	}
}

// roundBF16 adds half of the last place, or a little less where that is even; a NaN stays one.
func (g *neon) roundBF16(v *register) *register {
	odd, number := g.new(), g.new()
	g.arm("ushr 4s 4s #16", odd, v)
	odd = g.of("and", "16b", odd, g.bits(1))
	odd = g.of("add", "4s", odd, g.bits(0x7fff))
	g.into("fcmeq", "4s", number, v, v)
	g.into("bsl", "16b", number, g.of("add", "4s", v, odd), g.of("orr", "16b", v, g.bits(0x400000)))
	return number
}
