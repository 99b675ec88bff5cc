package main

import (
	"math"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
)

// exp64 is e^x in float64, as amd64 has it: the low bits of t are those of 2^k, of 0 where x ends
// below, and of infinity above.
func (g *neon) exp64(x *register) *register {
	const magic = 3<<51 + 1023
	x = g.between("2d", x, g.c64(-1023*math.Ln2), g.c64(1024*math.Ln2))
	t := g.c64(magic)
	g.fma("2d", t, x, g.c64(math.Log2E))
	k, r := g.of("fsub", "2d", t, g.c64(magic)), g.copy(x)
	g.into("fmls", "2d", r, k, g.c64(math.Ln2))
	g.arm("shl 2d 2d #52", t, t)
	return g.of("fmul", "2d", t, polynomial(g, "2d", g.c64, r, common.Exp))
}

// minusAbs64 is -|x|.
func (g *neon) minusAbs64(x *register) *register {
	v := g.new()
	g.arm("fabs 2d 2d", v, x)
	g.arm("fneg 2d 2d", v, v)
	return v
}

// belowZero64 is a where x has a sign, else b.
func (g *neon) belowZero64(x, a, b *register) *register {
	v := g.new()
	g.arm("cmlt 2d 2d #0", v, x)
	g.into("bsl", "16b", v, a, b)
	return v
}

// sigmoid64 is 1 / (1 + exp(-x)) = n / (1 + w), w being exp(-|x|), and n that where x is below
// 0, else 1.
func (g *neon) sigmoid64(x *register) *register {
	w := g.exp64(g.minusAbs64(x))
	return g.of("fdiv", "2d", g.belowZero64(x, w, g.c64(1)), g.of("fadd", "2d", w, g.c64(1)))
}

func (g *neon) silu64(x *register) *register { return g.of("fmul", "2d", g.sigmoid64(x), x) }

// softplus64 is max(x, 0) + log(1 + exp(-|x|)).
func (g *neon) softplus64(x *register) *register {
	w := g.exp64(g.minusAbs64(x))
	y := g.of("fmax", "2d", x, g.zero())
	g.fma("2d", y, w, polynomial(g, "2d", g.c64, w, common.Log1p))
	return y
}

// geluTanh64 is x times a sigmoid.
func (g *neon) geluTanh64(x *register) *register {
	const twice = 2 * 0.79788456080286535588 // sqrt(2/π)
	u := g.c64(twice)
	g.fma("2d", u, g.of("fmul", "2d", x, x), g.c64(twice*0.044715))
	return g.of("fmul", "2d", x, g.sigmoid64(g.of("fmul", "2d", x, u)))
}

// gelu64 is x times a part of the normal distribution: below -|x| there is exp(-x²/2) s P(s), s
// being 1 / (1 + 0.3 |x|).
func (g *neon) gelu64(x *register) *register {
	abs := g.new()
	g.arm("fabs 2d 2d", abs, x)
	long := g.c64(1)
	g.fma("2d", long, g.of("fmin", "2d", abs, g.c64(100)), g.c64(0.3))
	s := g.of("fdiv", "2d", g.c64(1), long)
	below := g.of("fmul", "2d", s, polynomial(g, "2d", g.c64, s, common.Tail))
	below = g.of("fmul", "2d", below, g.exp64(g.of("fmul", "2d", x, g.of("fmul", "2d", x, g.c64(-0.5)))))
	return g.of("fmul", "2d", x, g.belowZero64(x, below, g.of("fsub", "2d", g.c64(1), below)))
}
