package main

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
)

// bits, c and c64 load a constant into all lanes.
func (g *neon) bits(bits uint32) *register { return g.constant(uint64(bits)<<32 | uint64(bits)) }
func (g *neon) c(v float32) *register      { return g.bits(math.Float32bits(v)) }
func (g *neon) c64(v float64) *register    { return g.constant(math.Float64bits(v)) }

// of is an instruction whose result and operands are arranged alike.
func (g *neon) of(op, as string, operands ...*register) *register {
	to := g.new()
	g.into(op, as, to, operands...)
	return to
}

func (g *neon) into(op, as string, to *register, operands ...*register) {
	for range 1 + len(operands) {
		op += " " + as
	}
	g.arm(op, append([]*register{to}, operands...)...)
}

// fma adds a · b.
func (g *neon) fma(as string, to, a, b *register) { g.into("fmla", as, to, a, b) }

func (g *neon) zero() *register {
	v := g.new()
	g.do("VEOR V%[1]d.B16, V%[1]d.B16, V%[1]d.B16", v)
	return v
}

func (g *neon) copy(v *register) *register { return g.of("orr", "16b", v, v) }

// load loads 4, 8 or 16 bytes, and moves on; the others of a vector are 0.
func (g *neon) load(at *register, bytes int) *register {
	v := g.new()
	g.do(fmt.Sprintf("%s.P %d(R%%d), F%%d", moves[bytes], bytes), at, v)
	return v
}

// load16 loads 16 bits, and moves on; the others of a vector are 0.
func (g *neon) load16(at *register) *register {
	bits, v := g.address(), g.new()
	g.do("MOVHU.P 2(R%d), R%d", at, bits)
	g.do("FMOVS R%d, F%d", bits, v)
	return v
}

// peek loads, and stays.
func (g *neon) peek(at *register, bytes int) *register {
	v := g.new()
	g.do(moves[bytes]+" (R%d), F%d", at, v)
	return v
}

// put stores 4 or 16 bytes, and moves on.
func (g *neon) put(v, at *register, bytes int) {
	g.do(fmt.Sprintf("%s.P F%%d, %d(R%%d)", moves[bytes], bytes), v, at)
}

// moves are how vectors, or a part of one, are loaded and stored.
var moves = map[int]string{4: "FMOVS", 8: "FMOVD", 16: "FMOVQ"}

// double is a half of a vector in float64, the lower one first.
func (g *neon) double(v *register, half int) *register {
	d := g.new()
	g.arm([]string{"fcvtl 2d 2s", "fcvtl2 2d 4s"}[half], d, v)
	return d
}

// round is a vector of two in float64.
func (g *neon) round(low, high *register) *register {
	v := g.new()
	g.arm("fcvtn 2s 2d", v, low)
	g.arm("fcvtn2 4s 2d", v, high)
	return v
}

// pairs adds lanes that are two apart: those of a, then those of b.
func (g *neon) pairs(a, b *register) *register {
	return g.of("fadd", "4s", g.of("zip1", "2d", a, b), g.of("zip2", "2d", a, b))
}

// across adds the lanes of a vector, halves first.
func (g *neon) across(v *register) *register {
	sum := g.pairs(v, v)
	g.arm("faddp s 2s", sum, sum)
	return sum
}

// only is the first lane, and zeros: what others got of zeros may be no number.
func (g *neon) only(v *register) *register {
	first := g.new()
	g.do("FMOVS F%d, F%d", v, first)
	return first
}

// all is the first lane in all lanes.
func (g *neon) all(v *register) *register {
	all := g.new()
	g.arm("dup 4s s[0]", all, v)
	return all
}

// polynomial is Σ c[i] r^i, by Horner's rule: the constant of a step is loaded to where its sum is.
func polynomial[T float32 | float64](g *neon, as string, load func(T) *register, r *register, c []T) *register {
	p := load(c[len(c)-1])
	for i := len(c) - 2; i >= 0; i-- {
		next := load(c[i])
		g.fma(as, next, p, r)
		p = next
	}
	return p
}

// between is v, but at least a number, and at most another.
func (g *neon) between(as string, v, least, most *register) *register {
	return g.of("fmin", as, g.of("fmax", as, v, least), most)
}

// power is e^x, of which x (log + rest) is the logarithm to base 2: k + r.
func (g *neon) power(x, log, rest *register) *register {
	t := g.c(rounding)
	g.fma("4s", t, x, log)
	t = g.between("4s", t, g.c(rounding-152), g.c(rounding+130))
	minus := g.of("fsub", "4s", g.c(rounding), t) // -k
	r := g.copy(minus)
	g.fma("4s", r, x, log)
	g.fma("4s", r, x, rest)
	// Where k was out of reach, let the series be finite and above 0.
	r = g.between("4s", r, g.c(-1), g.c(1))
	return g.scale(polynomial(g, "4s", g.c, r, common.Exp2), minus, t)
}

const (
	log2eRest = 1.92596299e-8 // log2(e), less what it is as f32
	rounding  = 3 << 22       // adding it rounds to an integer, which the low bits then hold
)

// exp is e^x.
func (g *neon) exp(x *register) *register { return g.power(x, g.c(math.Log2E), g.c(log2eRest)) }

// scale is p · 2^k, rounded once; minus is -k, and t is k + rounding.
func (g *neon) scale(p, minus, t *register) *register {
	half := g.c(rounding + 127) // k/2, rounded; and k less that
	g.into("fmls", "4s", half, minus, g.c(0.5))
	rest := g.of("add", "4s", g.of("sub", "4s", t, half), g.bits(254))
	for _, factor := range []*register{half, rest} {
		s := g.new()
		g.arm("shl 4s 4s #23", s, factor)
		p = g.of("fmul", "4s", p, s)
	}
	return p
}
