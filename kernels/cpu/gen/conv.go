package main

import (
	"slices"

	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// conv generates convolutions over time of width 4, of which the first 3 inputs are in
// a state, with channels in the lanes: sums, and silu of sums and biases.
func conv(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		for _, silu := range []bool{false, true} {
			g := &convolver{vec: newVec(c, set), biased: silu}
			g.tight = !g.wide()
			g.write()
		}
	}
}

type convolver struct {
	*vec
	biased bool // and silu of that
	w      [4]Op
	b      Op
	h      [3]vector // inputs before the next, oldest first
	x, y   reg.Register
	xs, ys reg.Register
}

func (g *convolver) write() {
	name, what := "conv", "sums w[c][j] x[t-3+j][c]"
	if g.biased {
		name, what = "convSilu", "is silu(b[c] + the sum of w[c][j] x[t-3+j][c])"
	}
	g.function(name, "(y, x, w, h, b *float32, tokens, channels, ys, xs, ws int)",
		what+" for channels that fill vectors; rows are ys, xs and", "ws elements apart. h has the 3 inputs of each channel before the first, and is left those before the next.")
	w, h, ws := g.param("w"), g.param("h"), g.stride("ws")
	spill := g.AllocLocal(5 * g.bytes())
	g.Label("channels")
	for j, v := range g.weights(w, ws) {
		g.w[j] = g.keep(v, spill.Offset(j*g.bytes()))
	}
	if g.biased {
		b := g.param("b")
		g.b = g.keep(g.load(Mem{Base: b}, nil), spill.Offset(4*g.bytes()))
	}
	g.h = g.history(h)
	g.x, g.y, g.xs, g.ys = g.param("x"), g.param("y"), g.stride("xs"), g.stride("ys")
	g.tokens()
	g.remember(h)
	g.ADDQ(U32(3*g.bytes()), h)
	for range g.set.lanes {
		g.ADDQ(ws, w)
	}
	for _, p := range []string{"x", "y", "b"} {
		g.ADDQ(U8(g.bytes()), g.memory(p))
	}
	g.SUBQ(U8(g.set.lanes), g.memory("channels"))
	g.JNZ(LabelRef("channels"))
	g.end()
}

// keep holds a value through the loop over tokens, in memory where registers are few.
func (g *convolver) keep(v vector, at Mem) Op {
	if g.wide() {
		return v
	}
	g.VMOVUPS(v, at)
	return at
}

// convAhead is how many tokens ahead rows are fetched.
const convAhead = 16

// tokens goes over them, some at once.
func (g *convolver) tokens() {
	chains := []int{2, 1}
	if g.biased || !g.wide() {
		chains = chains[1:]
	}
	left, x, y := g.param("tokens"), g.ahead(g.x, g.xs, convAhead), g.ahead(g.y, g.ys, convAhead)
	for _, n := range chains {
		g.loop("tokens", left, n, func() { g.step(n, x, y) })
	}
}

// step takes n tokens, and fetches rows of those from x and y on.
func (g *convolver) step(n int, x, y reg.Register) {
	in := slices.Clone(g.h[:])
	for i := range n {
		in = append(in, g.load(strided(g.x, g.xs, nil)[i], nil))
	}
	g.together(n, func(i int) { g.store(g.value(in[i:]), strided(g.y, g.ys, nil)[i], nil) })
	for j := range g.h {
		g.VMOVAPS(in[n+j], g.h[j])
	}
	for range n {
		g.PREFETCHT0(Mem{Base: x})
		g.PREFETCHT0(Mem{Base: y})
		g.ADDQ(g.xs, x)
		g.ADDQ(g.ys, y)
		g.ADDQ(g.xs, g.x)
		g.ADDQ(g.ys, g.y)
	}
}

// value is what a token puts out.
func (g *convolver) value(in []vector) vector {
	s := g.mul(g.w[0], in[0])
	for j := 1; j < 4; j++ {
		g.VFMADD231PS(g.w[j], in[j], s)
	}
	if g.biased {
		return g.of(g.add(g.b, s), doubles.silu)
	}
	return s
}

// weights loads those of as many channels as there are lanes, of all places in time.
func (g *convolver) weights(w, ws reg.Register) [4]vector {
	at, four := g.GP64(), g.GP64()
	g.MOVQ(w, at)
	g.LEAQ(Mem{Base: ws, Index: ws, Scale: 1}, four)
	g.ADDQ(four, four)
	twelve := g.triple(four)
	var m [4]vector
	for i := range m {
		m[i] = g.quadsOf(strided(at, four, twelve))
		g.ADDQ(ws, at)
	}
	return g.transposed(m)
}

// triples are where the elements 4i to 4i+3 of the 12 of four channels lie, for each four.
func triples(h reg.Register, i int) (at [4]Mem) {
	for four := range at {
		at[four] = Mem{Base: h, Disp: 48*four + 16*i}
	}
	return at
}

// shuffle is elements i and j of a, and k and l of b, of each four.
func (g *convolver) shuffle(a, b vector, i, j, k, l int) vector {
	v := g.new()
	g.VSHUFPS(U8(i|j<<2|k<<4|l<<6), b, a, v)
	return v
}

// history takes the three inputs of each channel apart.
func (g *convolver) history(h reg.Register) [3]vector {
	var m [3]vector
	for i := range m {
		m[i] = g.quadsOf(triples(h, i))
	}
	xy, yz := g.shuffle(m[1], m[2], 2, 3, 1, 2), g.shuffle(m[0], m[1], 1, 2, 0, 1)
	return [3]vector{g.shuffle(m[0], xy, 0, 3, 0, 2), g.shuffle(yz, xy, 0, 2, 1, 3), g.shuffle(yz, m[2], 1, 3, 0, 3)}
}

// remember puts them together again.
func (g *convolver) remember(h reg.Register) {
	x, y, z := g.h[0], g.h[1], g.h[2]
	xy, yz, zx := g.shuffle(x, y, 0, 2, 0, 2), g.shuffle(y, z, 1, 3, 1, 3), g.shuffle(z, x, 0, 2, 1, 3)
	for i, v := range []vector{g.shuffle(xy, zx, 0, 2, 0, 2), g.shuffle(yz, xy, 0, 2, 1, 3), g.shuffle(zx, yz, 1, 3, 1, 3)} {
		at := triples(h, i)
		g.VMOVUPS(v.AsX(), at[0])
		if g.wide() {
			for four := 1; four < 4; four++ {
				g.VEXTRACTF32X4(U8(four), v, at[four])
			}
		} else {
			g.VEXTRACTF128(U8(1), v, at[1])
		}
	}
}
