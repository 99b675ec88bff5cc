package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const scanChannels = 64 // at most, of one call

// scan generates the recurrence of selective_scan, with the states of a channel in the
// lanes. A channel's output is the sum of the lanes' sums, over
// which halves are added: 0 to 2, 1 to 3, those two, and then the quarters likewise.
func scan(c *build.Context) {
	for _, set := range []isa{avx2, avx512} {
		g := &scanner{vec: newVec(c, set)}
		g.write()
	}
}

type scanner struct {
	*vec
	work                    Mem          // where it begins is kept here; see the offsets below
	left                    Mem          // channels to do
	a, as, as3              reg.Register // rates, rows of as bytes; as3 is three of them
	h, size, size3          reg.Register // states, size bytes of a channel
	rowB, rowC, factor, sum reg.Register
}

// Parts of the scratch memory of a call.
const (
	logs  = 0                 // dt log2(e) of each channel
	rests = 4 * scanChannels  // what rounding took from that
	ins   = 8 * scanChannels  // dt u
	sums  = 12 * scanChannels // a vector to add up for each of as many channels as there are lanes
)

func (g *scanner) write() {
	g.function("scan", "(y, u, dt, a, b, c, h *float32, tokens, channels, n, ys, us, dts, as, bs, cs int)",
		"runs h = exp(dt a) h + dt u b, y = Σ h c over n states of up to 64 channels,",
		"for tokens whose rows are ys, us, dts, bs and cs elements apart; rows of a are as apart.")
	g.Attributes(attr.Attribute(0))
	frame := g.AllocLocal(16 + sums + g.set.lanes*g.bytes() + 64)
	g.work, g.left = frame, frame.Offset(8)
	work := g.GP64()
	g.LEAQ(frame.Offset(16+63), work)
	g.ANDQ(I8(-64), work)
	g.MOVQ(work, g.work)
	rest := g.param("n")
	g.ANDQ(U8(g.set.lanes-1), rest)
	part := g.tail(rest)
	g.hold(8, func(v *vec) {
		(&scanner{vec: v}).decay(v.new(), v.new, v.new)
	})
	g.Label("token")
	g.perChannel()
	g.channels(&part)
	for _, row := range [][2]string{{"y", "ys"}, {"u", "us"}, {"dt", "dts"}, {"b", "bs"}, {"c", "cs"}} {
		stride := g.param(row[1])
		g.SHLQ(U8(2), stride)
		g.ADDQ(stride, g.memory(row[0]))
	}
	g.DECQ(g.memory("tokens"))
	g.JNZ(LabelRef("token"))
	g.end()
}

const log2eRest = 1.92596299e-8 // log2(e), less what it is as f32

// perChannel works out the factors of a token.
func (g *scanner) perChannel() {
	u, dt, n, to := g.param("u"), g.param("dt"), g.param("channels"), g.GP64()
	g.MOVQ(g.work, to)
	step := func(t *tail) {
		d := g.load(Mem{Base: dt}, t)
		log := g.mul(g.c(math.Log2E), d)
		rest := g.copy(log)
		g.VFMSUB231PS(g.c(math.Log2E), d, rest)
		g.VFMADD231PS(g.c(log2eRest), d, rest)
		g.VMOVUPS(log, Mem{Base: to, Disp: logs})
		g.VMOVUPS(rest, Mem{Base: to, Disp: rests})
		g.VMOVUPS(g.mul(d, g.load(Mem{Base: u}, t)), Mem{Base: to, Disp: ins})
	}
	g.SUBQ(U8(g.set.lanes), n)
	g.JLT(LabelRef("somefactors"))
	g.Label("factors")
	step(nil)
	for _, p := range []reg.Register{u, dt, to} {
		g.ADDQ(U8(g.bytes()), p)
	}
	g.SUBQ(U8(g.set.lanes), n)
	g.JGE(LabelRef("factors"))
	g.Label("somefactors")
	g.ADDQ(U8(g.set.lanes), n)
	g.JZ(LabelRef("allfactors"))
	t := g.tail(n)
	step(&t)
	g.Label("allfactors")
}

// channels runs the recurrence of a token: as many channels as there are lanes, and then
// what these put out.
func (g *scanner) channels(part *tail) {
	g.a, g.h, g.rowB, g.rowC = g.param("a"), g.param("h"), g.param("b"), g.param("c")
	g.as, g.as3, g.size, g.size3 = g.param("as"), g.GP64(), g.param("n"), g.GP64()
	g.SHLQ(U8(2), g.as)
	g.SHLQ(U8(2), g.size)
	g.LEAQ(Mem{Base: g.as, Index: g.as, Scale: 2}, g.as3)
	g.LEAQ(Mem{Base: g.size, Index: g.size, Scale: 2}, g.size3)
	y, count := g.param("y"), g.param("channels")
	g.MOVQ(count, g.left)
	g.factor, g.sum = g.GP64(), g.GP64()
	g.MOVQ(g.work, g.factor)
	g.Label("channels")
	g.MOVQ(g.work, g.sum)
	g.ADDQ(U32(sums), g.sum)
	g.MOVQ(g.left, count)
	g.CMPQ(count, U8(g.set.lanes))
	g.JLE(LabelRef("last"))
	g.MOVQ(U32(g.set.lanes), count)
	g.Label("last")
	g.SUBQ(count, g.left)
	several := g.GP64()
	g.MOVQ(count, several)
	for _, n := range []int{g.chains(), 1} {
		one, none := g.label("channel"), g.label("nochannel")
		g.SUBQ(U8(n), count)
		g.JLT(LabelRef(none))
		g.Label(one)
		g.states(n, part)
		g.SUBQ(U8(n), count)
		g.JGE(LabelRef(one))
		g.Label(none)
		g.ADDQ(U8(n), count)
	}
	total := g.total()
	g.CMPQ(several, U8(g.set.lanes))
	g.JLT(LabelRef("some"))
	g.VMOVUPS(total, Mem{Base: y})
	g.ADDQ(U8(g.bytes()), y)
	g.CMPQ(g.left, U8(0))
	g.JNE(LabelRef("channels"))
	g.JMP(LabelRef("allchannels"))
	g.Label("some")
	t := g.tail(several)
	t.store(total, Mem{Base: y})
	g.Label("allchannels")
}

// chains is how many channels are computed at a time.
func (g *scanner) chains() int {
	if g.wide() {
		return 4
	}
	return 2
}

// states updates the states of n channels, and goes on to those after them.
func (g *scanner) states(n int, part *tail) {
	acc := make([]vector, n)
	for i := range acc {
		acc[i] = g.zero()
	}
	step := func(t *tail) {
		g.together(n, func(i int) {
			factor := func(which int) func() vector {
				return func() vector {
					v := g.new()
					g.VBROADCASTSS(Mem{Base: g.factor, Disp: 4*i + which}, v)
					return v
				}
			}
			decay := g.decay(g.load(strided(g.a, g.as, g.as3)[i], t), factor(logs), factor(rests))
			h := strided(g.h, g.size, g.size3)[i]
			state := g.load(h, t)
			g.VFMADD213PS(g.mul(g.load(Mem{Base: g.rowB}, t), factor(ins)()), decay, state)
			g.store(state, h, t)
			g.VFMADD231PS(g.load(Mem{Base: g.rowC}, t), state, acc[i])
		})
	}
	left := g.GP64()
	g.MOVQ(g.size, left)
	some, all, whole := g.label("somestates"), g.label("allstates"), g.label("states")
	g.SUBQ(U8(g.bytes()), left)
	g.JLT(LabelRef(some))
	g.Label(whole)
	step(nil)
	for _, p := range []reg.Register{g.a, g.h, g.rowB, g.rowC} {
		g.ADDQ(U8(g.bytes()), p)
	}
	g.SUBQ(U8(g.bytes()), left)
	g.JGE(LabelRef(whole))
	g.Label(some)
	g.ADDQ(U8(g.bytes()), left)
	g.JZ(LabelRef(all))
	step(part)
	for _, p := range []reg.Register{g.a, g.h, g.rowB, g.rowC} {
		g.ADDQ(left, p)
	}
	g.Label(all)
	for _, p := range []reg.Register{g.a, g.rowB, g.rowC} {
		g.SUBQ(g.size, p)
	}
	for i := range acc {
		g.VMOVUPS(acc[i], Mem{Base: g.sum, Disp: i * g.bytes()})
		g.ADDQ(g.as, g.a)
		if i > 0 {
			g.ADDQ(g.size, g.h)
		}
	}
	g.ADDQ(U8(4*n), g.factor)
	g.ADDQ(U32(n*g.bytes()), g.sum)
}

// decay is exp(dt a), of which a (log + rest) is the logarithm to base 2: k + r.
func (g *scanner) decay(a vector, log, rest func() vector) vector {
	hi, t := log(), g.copy(g.c(magic))
	g.VFMADD231PS(hi, a, t)
	if g.wide() {
		k := g.sub(g.c(magic), t)
		r := g.copy(k)
		g.VFMSUB231PS(hi, a, r)
		g.VFMADD231PS(rest(), a, r)
		// Where k is so large that r is no fraction, let the series be finite and above
		// 0: of r and 1 the smaller, with the sign of r. k says the rest, also of a NaN.
		g.VRANGEPS(U8(2), g.c(1), r, r)
		return g.scale(g.polynomial(r, exp2Series...), k, t)
	}
	const unordered = 3
	nan := g.new()
	g.VCMPPS(U8(unordered), t, t, nan)
	g.VMAXPS(g.c(magic-152), t, t)
	g.VMINPS(g.c(magic+130), t, t)
	r := g.sub(g.c(magic), t)
	g.VFMSUB231PS(hi, a, r)
	g.VFMADD231PS(rest(), a, r)
	g.VMAXPS(g.c(-1), r, r)
	g.VMINPS(g.c(1), r, r)
	p := g.polynomial(r, exp2Series...)
	p = g.scale(p, g.sub(g.c(magic), t), t)
	g.VORPS(nan, p, p)
	return p
}

// total adds up the sums of as many channels as there are lanes.
func (g *scanner) total() vector {
	pair := func(a, b vector, low, high func(...Op)) vector {
		lo, hi := g.new(), g.new()
		low(b, a, lo)
		high(b, a, hi)
		return g.add(hi, lo)
	}
	at, fours := g.GP64(), []vector(nil)
	g.MOVQ(g.work, at)
	for i := 0; i < g.set.lanes; i += 4 {
		var v [4]vector
		for j := range v {
			v[j] = g.load(Mem{Base: at, Disp: sums + (i+j)*g.bytes()}, nil)
		}
		fours = append(fours, pair(pair(v[0], v[1], g.VUNPCKLPS, g.VUNPCKHPS), pair(v[2], v[3], g.VUNPCKLPS, g.VUNPCKHPS), g.VUNPCKLPD, g.VUNPCKHPD))
	}
	quarters := func(which int) func(...Op) {
		return func(ops ...Op) {
			if g.wide() {
				g.VSHUFF32X4(append([]Op{U8(which)}, ops...)...)
			} else {
				g.VPERM2F128(U8(which), ops[0], ops[1], ops[2])
			}
		}
	}
	if !g.wide() {
		return pair(fours[0], fours[1], quarters(0x20), quarters(0x31))
	}
	lower := pair(fours[0], fours[1], quarters(0x44), quarters(0xEE))
	upper := pair(fours[2], fours[3], quarters(0x44), quarters(0xEE))
	return pair(lower, upper, quarters(0x88), quarters(0xDD))
}
