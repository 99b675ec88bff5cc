package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// product generates products of rows of weights with rows of x, whose sums are in f32 or in
// float64. The order of a sum does not depend on the numbers of rows: lane i of a vector sums the
// elements i, i + lanes, … with fused multiplications, and then lanes are added.
//
// Several rows of x for sums in float64 are packed, a vector of each and so on, as float64:
// widening costs as much as multiplying.
type product struct {
	*vec
	format       format // of weights
	rows, tokens int
	f64          bool // sums are in float64

	w, x        lines
	upperHalves vector // of bf16 in AVX-512: where the upper halves of 16 lanes are in 16 words
	odd         reg.OpmaskVirtual
}

func (g *product) lanes() int {
	if g.f64 {
		return g.set.lanes / 2
	}
	return g.set.lanes
}

// packed says whether rows of x are.
func (g *product) packed() bool { return g.f64 && g.tokens > 1 }

// addUp adds vectors of sums, and multiplyAdd products.
func (g *product) addUp(ops ...Op) {
	if g.f64 {
		g.VADDPD(ops...)
	} else {
		g.VADDPS(ops...)
	}
}

func (g *product) multiplyAdd(x Op, w, sum vector) {
	if g.f64 {
		g.VFMADD231PD(x, w, sum)
	} else {
		g.VFMADD231PS(x, w, sum)
	}
}

// halves is what loaded takes for bf16 in AVX-512: a permutation of words, and zeros for the lower
// halves.
func (g *product) halves() {
	if g.format != bf16 || !g.wide() {
		return
	}
	words := g.data(constant{16, 64}, "gemmWords", func(i int) (Constant, bool) { return U32(uint32(i << 16)), i < 16 })
	bits := g.GP32()
	g.upperHalves, g.odd = g.ZMM(), g.K()
	g.VMOVUPS(words, g.upperHalves)
	g.MOVL(U32(0xaaaaaaaa), bits)
	g.KMOVD(bits, g.odd)
}

// loaded is a vector, widened to what the sums are in.
func (g *product) loaded(f format, from Mem, t *tail) vector {
	if f == f32 && !g.f64 {
		return g.load(from, t)
	}
	v := g.new()
	switch {
	case f == f32:
		g.VCVTPS2PD(from, v)
	case g.f64:
		narrow := g.narrow()
		g.widen(f, from, narrow)
		g.VCVTPS2PD(narrow, v)
	case g.upperHalves != nil:
		g.VBROADCASTI64X4(from, v)
		g.VPERMW_Z(v, g.upperHalves, g.odd, v)
	default:
		g.widen(f, from, v)
	}
	return v
}

// narrow is a vector of f32 that widens to one of float64.
func (g *product) narrow() vector {
	if g.wide() {
		return g.YMM()
	}
	return g.XMM()
}

// rounded is a vector of float64 as f32, in the lower half of its register.
func (g *product) rounded(v vector) Op {
	if g.wide() {
		g.VCVTPD2PS(v, v.AsY())
		return v.AsY()
	}
	g.VCVTPD2PSY(v, v.AsX())
	return v.AsX()
}

// inputs are a vector of each row of x.
func (g *product) inputs(t *tail) (x []Op) {
	for i := range g.tokens {
		if g.packed() {
			x = append(x, g.x.at(i))
		} else {
			x = append(x, g.loaded(f32, g.x.at(i), t))
		}
	}
	return x
}

// sums are zeros, by token and row.
func (g *product) sums() [][]vector {
	sums := make([][]vector, g.tokens)
	for t := range sums {
		for range g.rows {
			sums[t] = append(sums[t], g.zero())
		}
	}
	return sums
}

// products adds those of a vector of each row, or with a tail of its lanes: weights are widened
// once, for all tokens.
func (g *product) products(sums [][]vector, t *tail) {
	x := g.inputs(t)
	for r := range g.rows {
		w := g.loaded(g.format, g.w.at(r), t)
		for i := range x {
			g.multiplyAdd(x[i], w, sums[i][r])
		}
	}
}

// vectors sums what fills vectors of k elements, and leaves k the rest.
func (g *product) vectors(k reg.Register, each func()) [][]vector {
	sums := g.sums()
	g.loop("vectors", k, g.lanes(), func() {
		g.products(sums, nil)
		each()
		g.advance(g.lanes())
	})
	return sums
}

// advance goes on by n elements.
func (g *product) advance(n int) {
	size := 4
	if g.packed() {
		size = 8 * g.tokens
	}
	g.w.move(g.ADDQ, Imm(uint64(n*g.format.Size)))
	g.x.move(g.ADDQ, U32(n*size))
}

// masked sums the rest that vectors leaves, as a vector padded with zeros. Weights of 16 bits have
// none.
func (g *product) masked(sums [][]vector, k reg.Register) {
	if g.format != f32 {
		return
	}
	g.JZ(LabelRef("summed"))
	t := g.tailInMemory(k)
	g.products(sums, &t)
	g.Label("summed")
}

// reduce adds the lanes of the sums: vectors that have four lanes, a row each, for one token of
// float64 and for as many of f32 as there is room for. Fewer rows and tokens come several times.
//
// Halves are added until four lanes are left. Of f32 those are halves again; of float64 first those
// of pairs.
func (g *product) reduce(sums [][]vector) (out []vector) {
	type operands struct {
		apart int
		a, b  vector
	}
	done := map[operands]vector{}
	fold := func(apart int, a, b vector) vector {
		of := operands{apart, a, b}
		if done[of] == nil {
			done[of] = g.fold(g.addUp, apart, a, b)
		}
		return done[of]
	}
	for from := 0; from < g.tokens; from += g.share() {
		var rows [4]vector
		for r := range rows {
			at := func(t int) vector { return sums[from+t%min(g.share(), g.tokens-from)][r%g.rows] }
			switch {
			case g.f64 && g.wide():
				rows[r] = g.halved(at(0), g.addUp)
			case g.f64:
				rows[r] = at(0)
			case g.wide():
				rows[r] = fold(128, fold(256, at(0), at(1)), fold(256, at(2), at(3)))
			default:
				rows[r] = fold(128, at(0), at(1))
			}
		}
		last := 32
		if g.f64 {
			last = 128
		}
		out = append(out, fold(last, fold(64, rows[0], rows[1]), fold(64, rows[2], rows[3])))
	}
	return out
}

// share is of how many tokens a vector has the sums of four rows.
func (g *product) share() int {
	if g.f64 {
		return 1
	}
	return g.set.lanes / 4
}
