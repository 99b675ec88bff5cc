package main

import "github.com/krait-ml/krait/kernels/cpu/gen/common"

type format = common.Format

var f32, bf16, f16, formats = common.F32, common.BF16, common.F16, common.Formats

// product generates products of rows of weights with rows of x. The sums are in f32 or float64, and
// their order is that of AVX2, whose vectors are two registers here. Several rows of x for sums in
// float64 are packed as float64.
type product struct {
	*neon
	format           format
	rowCount, tokens int
	f64              bool        // sums are in float64
	w, x             []*register // where rows go on
}

// packed says whether rows of x are.
func (g *product) packed() bool { return g.f64 && g.tokens > 1 }

// sums are zeros, by token and row.
func (g *product) sums() [][][2]*register {
	sums := make([][][2]*register, g.tokens)
	for t := range sums {
		for range g.rowCount {
			sums[t] = append(sums[t], [2]*register{g.zero(), g.zero()})
		}
	}
	return sums
}

// vectors adds the products of a vector of each row. Those of weights are widened once for all
// tokens.
func (g *product) vectors(sums [][][2]*register) {
	var x [][2]*register
	for t := range g.tokens {
		if g.packed() {
			x = append(x, g.load8(f32, g.x[0])) // 4 in float64
		} else {
			x = append(x, g.loaded(f32, g.x[t]))
		}
	}
	as := "4s"
	if g.f64 {
		as = "2d"
	}
	for r, at := range g.w {
		w := g.loaded(g.format, at)
		for t := range x {
			for half := range 2 {
				g.fma(as, sums[t][r][half], w[half], x[t][half])
			}
		}
	}
}

// loaded is a vector, widened to what the sums are in.
func (g *product) loaded(f format, at *register) [2]*register {
	if !g.f64 {
		return g.load8(f, at)
	}
	v := g.load(at, 4*f.Size)
	if f != f32 {
		v = g.widened(f, v, 0)
	}
	return [2]*register{g.double(v, 0), g.double(v, 1)}
}

// load8 loads 8 elements as f32, and moves on.
func (g *neon) load8(f format, at *register) [2]*register {
	if f == f32 {
		low, high := g.new(), g.new()
		g.do("FLDPQ.P 32(R%d), (F%d, F%d)", at, low, high)
		return [2]*register{low, high}
	}
	halves := g.load(at, 16)
	return [2]*register{g.widened(f, halves, 0), g.widened(f, halves, 1)}
}

// widened is a half of a vector of 16-bit numbers as f32, the lower one first.
func (g *neon) widened(f format, halves *register, half int) *register {
	v, by := g.new(), [2]string{"fcvtl 4s 4h", "fcvtl2 4s 8h"}
	if f == bf16 {
		by = [2]string{"shll 4s 4h #16", "shll2 4s 8h #16"}
	}
	g.arm(by[half], v, halves)
	return v
}
