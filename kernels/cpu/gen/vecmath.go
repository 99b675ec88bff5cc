package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vec writes a function whose operations are on vectors of f32, of one instruction
// set. Operands stand in Go's order: what is subtracted comes first, the result last.
type vec struct {
	*build.Context
	set    isa
	held   map[uint32]reg.VecVirtual // constants that are in registers
	wanted map[uint32]int            // of a rehearsal: how often it asked for a constant
	ends   int                       // labels so far
}

type (
	vector = reg.VecVirtual
)

func newVec(c *build.Context, set isa) *vec {
	return &vec{Context: c, set: set, held: map[uint32]reg.VecVirtual{}}
}

func (g *vec) wide() bool { return g.set.lanes == 16 }

func (g *vec) bytes() int { return 4 * g.set.lanes }

func (g *vec) new() vector {
	if g.wide() {
		return g.ZMM()
	}
	return g.YMM()
}

// function begins one that takes params.
func (g *vec) function(name, params string, doc ...string) {
	g.Function(name + g.set.name)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	doc[0] = name + g.set.name + " " + doc[0]
	g.Doc(doc...)
	g.SignatureExpr("func(" + params + ")")
}

func (g *vec) end() {
	g.VZEROUPPER()
	g.RET()
}

// param is a parameter in a register.
func (g *vec) param(name string) reg.Register { return g.Load(g.Param(name), g.GP64()) }

// memory is where a parameter lies.
func (g *vec) memory(name string) Mem {
	b, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func (g *vec) label(name string) string {
	g.ends++
	return fmt.Sprintf("%s%d", name, g.ends)
}

// globals are the constants of a file, in memory.
var globals = map[*build.Context]map[uint32]Mem{}

// global is a constant in memory, once for each lane of a YMM.
func (g *vec) global(bits uint32) Mem {
	all := globals[g.Context]
	if all == nil {
		all = map[uint32]Mem{}
		globals[g.Context] = all
	}
	if _, ok := all[bits]; !ok {
		all[bits] = g.StaticGlobal(fmt.Sprintf("lanes%08X", bits))
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for range 8 {
			g.AppendDatum(U32(bits))
		}
	}
	return all[bits]
}

// bits is a constant as the first operand of an operation: where it is held, its
// register; else in memory, or broadcast from there.
func (g *vec) bits(bits uint32) Op {
	if g.wanted != nil {
		g.wanted[bits]++
	}
	if r, ok := g.held[bits]; ok {
		return r
	}
	if g.wide() {
		v := g.new()
		g.VBROADCASTSS(g.global(bits), v)
		return v
	}
	return g.global(bits)
}

func (g *vec) c(v float32) Op { return g.bits(math.Float32bits(v)) }

// hold puts constants that body asks for into registers, where there are enough: at most
// n, those that it asks for most often.
func (g *vec) hold(n int, body func(g *vec)) {
	if !g.wide() {
		return
	}
	rehearsal := newVec(build.NewContext(), g.set)
	rehearsal.wanted = map[uint32]int{}
	rehearsal.Function("rehearsal")
	body(rehearsal)
	most := slices.SortedFunc(maps.Keys(rehearsal.wanted), func(a, b uint32) int {
		return cmp.Or(rehearsal.wanted[b]-rehearsal.wanted[a], cmp.Compare(a, b))
	})
	for _, bits := range most[:min(n, len(most))] {
		r := g.new()
		g.VBROADCASTSS(g.global(bits), r)
		g.held[bits] = r
	}
}

// set is a register with a constant, or a copy of one.
func (g *vec) copy(from Op) vector {
	v := g.new()
	g.VMOVUPS(from, v)
	return v
}

func (g *vec) add(a Op, b vector) vector { v := g.new(); g.VADDPS(a, b, v); return v }
func (g *vec) mul(a Op, b vector) vector { v := g.new(); g.VMULPS(a, b, v); return v }
func (g *vec) sub(a Op, b vector) vector { v := g.new(); g.VSUBPS(a, b, v); return v } // b - a

// atMost and atLeast give a NaN for a NaN.
func (g *vec) atMost(most Op, v vector) vector   { m := g.copy(most); g.VMINPS(v, m, m); return m }
func (g *vec) atLeast(least Op, v vector) vector { m := g.copy(least); g.VMAXPS(v, m, m); return m }

func (g *vec) zero() vector {
	v := g.new()
	if g.wide() {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
	return v
}

// together writes the instructions of n chains in turns, so that one does not wait for
// itself.
func (g *vec) together(n int, chain func(i int)) {
	file, err := g.Result()
	if err != nil {
		panic(err)
	}
	functions := file.Functions()
	f := functions[len(functions)-1]
	before := len(f.Nodes)
	var chains [][]ir.Node
	for i := range n {
		chain(i)
		chains = append(chains, slices.Clone(f.Nodes[before:]))
		f.Nodes = f.Nodes[:before]
	}
	for k := range chains[0] {
		for _, c := range chains {
			f.Nodes = append(f.Nodes, c[k])
		}
	}
}

// polynomial is Σ c[i] r^i, by Horner's rule.
func (g *vec) polynomial(r vector, c ...float32) vector {
	p := g.copy(g.c(c[len(c)-1]))
	for i := len(c) - 2; i >= 0; i-- {
		g.VFMADD213PS(g.c(c[i]), r, p)
	}
	return p
}

const mostBits = 0x7F7FFFFF // the largest f32

// Adding magic to a number rounds it to an integer, which the low bits then hold.
const magic = 3 << 22

const (
	log2e   = 1.44269504088896341
	ln2Hi   = 0.693359375 // of so few bits that its products with exponents are exact
	ln2Lo   = -2.12194440e-4
	ln2Rest = -1.904654290e-9 // log 2, less what it is as f32
)

// The polynomials are minimax ones in f32: relative errors below 2^-27.
var (
	expSeries   = []float32{0x1p-1, 0x1.555462p-3, 0x1.5552f8p-5, 0x1.125a46p-7, 0x1.6fec54p-10}
	exp2Series  = []float32{1, 0x1.62e432p-1, 0x1.ebfbe6p-3, 0x1.c6adaap-5, 0x1.3b2178p-7, 0x1.5fc10cp-10, 0x1.4c1f26p-13}
	log1pSeries = []float32{-0x1p-1, 0x1.55555ap-2, -0x1.00007p-2, 0x1.999752p-3, -0x1.55190cp-3, 0x1.24657cp-3,
		-0x1.04bbaep-3, 0x1.df1da6p-4, -0x1.7490b2p-4, 0x1.334738p-5}
)

// exp is e^x for any x, nearly correctly rounded also where results are denormal:
// x = k ln 2 + r, and e^x = 2^k (1 + r + r² Q(r)). What rounding takes from r and from
// 1 + r is added to the rest.
func (g *vec) exp(x vector) vector {
	x = g.atMost(g.c(89), g.atLeast(g.c(-105), x)) // beyond, results are 0 and infinite, too
	t := g.copy(g.c(magic))
	g.VFMADD231PS(g.c(log2e), x, t)
	k := g.sub(g.c(magic), t)
	g.VFNMADD231PS(g.c(ln2Hi), k, x)
	r := g.copy(x)
	g.VFNMADD231PS(g.c(ln2Lo), k, r)
	small := g.sub(r, x)
	g.VFNMADD231PS(g.c(ln2Lo), k, small)
	g.VFMADD231PS(g.mul(r, r), g.polynomial(r, expSeries...), small)
	p := g.add(g.c(1), r)
	small = g.add(small, g.sub(g.sub(g.c(1), p), r))
	return g.scale(g.add(small, p), k, t)
}

// scale is p·2^k, rounded once; t is k + magic.
func (g *vec) scale(p, k, t vector) vector {
	if g.wide() {
		g.VSCALEFPS(k, p, p)
		return p
	}
	half := g.copy(g.c(magic + 127)) // k/2, rounded; and k less that
	g.VFMADD231PS(g.c(0.5), k, half)
	rest := g.new()
	g.VPSUBD(half, t, rest)
	g.VPADDD(g.bits(254), rest, rest)
	g.VPSLLD(U8(23), half, half)
	g.VPSLLD(U8(23), rest, rest)
	g.VMULPS(half, p, p)
	g.VMULPS(rest, p, p)
	return p
}

// minusAbs is -|x|.
func (g *vec) minusAbs(x vector) vector {
	v := g.new()
	g.VORPS(g.bits(1<<31), x, v)
	return v
}

// silu is x / (1 + exp(-x)) = x n / (1 + w), w being exp(-|x|), and n that where x is
// below 0, else 1. The quotient q has a second part: what rounding took from it and from
// 1 + w.
func (g *vec) silu(x vector) vector {
	w := g.exp(g.minusAbs(x))
	n := g.belowZero(x, w, g.copy(g.c(1)))
	d := g.add(g.c(1), w)
	lost := g.sub(g.sub(g.c(1), d), w)
	inverse, q := g.new(), g.new()
	if g.wide() { // one step of Newton's method is faster than a division
		e := g.copy(g.c(1))
		g.VRCP14PS(d, inverse)
		g.VFNMADD231PS(inverse, d, e)
		g.VFMADD231PS(e, inverse, inverse)
		g.VMULPS(inverse, n, q)
	} else {
		g.VRCPPS(d, inverse)
		g.VDIVPS(d, n, q)
	}
	g.VFNMADD231PS(q, d, n)
	g.VFNMADD231PS(q, lost, n)
	finite := g.new()
	g.VMINPS(g.bits(mostBits), x, finite) // times a second part of 0
	y := g.mul(finite, g.mul(inverse, n))
	g.VFMADD231PS(q, x, y)
	return y
}

// belowZero is a where x has a sign, else b.
func (g *vec) belowZero(x, a, b vector) vector {
	v := g.new()
	if g.wide() {
		negative := g.K()
		g.VPMOVD2M(x, negative)
		g.VBLENDMPS(a, b, negative, v)
	} else {
		g.VBLENDVPS(x, a, b, v)
	}
	return v
}

// softplus is max(x, 0) + log(1 + w), w being exp(-|x|). A w above a half is 1 + 2f, so
// that log(1 + w) = log 2 + log(1 + f); x and log 2 are added without a loss.
func (g *vec) softplus(x vector) vector {
	const greater = 30
	w, base := g.exp(g.minusAbs(x)), g.atLeast(g.c(0), x)
	f, lower := g.copy(g.c(-0.5)), g.new()
	g.VFMADD231PS(g.c(0.5), w, f)
	sum := g.add(g.c(math.Ln2), base)
	lost := g.add(g.c(ln2Rest), g.sub(g.sub(g.c(math.Ln2), sum), base))
	if g.wide() {
		upper := g.K()
		g.VCMPPS(U8(greater), g.c(0.5), w, upper)
		g.VBLENDMPS(f, w, upper, f)
		g.VBLENDMPS(sum, base, upper, base)
		g.VMOVAPS_Z(lost, upper, lower)
	} else {
		upper := g.new()
		g.VCMPPS(U8(greater), g.c(0.5), w, upper)
		g.VBLENDVPS(upper, f, w, f)
		g.VBLENDVPS(upper, sum, base, base)
		g.VANDPS(lost, upper, lower)
	}
	y := g.mul(f, f)
	g.VFMADD213PS(f, g.polynomial(f, log1pSeries...), y)
	return g.add(base, g.add(lower, y))
}

// tail is a mask of lanes below n, which is between 0 and the number of lanes.
type tail struct {
	g    *vec
	k    reg.Register // wide
	mask vector       // otherwise
}

func (g *vec) tail(n reg.Register) tail {
	if g.wide() {
		ones, k := g.GP64(), g.K()
		g.MOVQ(I32(-1), ones)
		g.BZHIQ(n, ones, ones)
		g.KMOVW(ones.As32(), k)
		return tail{g: g, k: k}
	}
	at, mask := g.GP64(), g.new()
	g.LEAQ(g.tails(), at)
	negative := g.GP64()
	g.MOVQ(n, negative)
	g.NEGQ(negative)
	g.VMOVUPS(Mem{Base: at, Index: negative, Scale: 4, Disp: 32}, mask)
	return tail{g: g, mask: mask}
}

// tails is 8 lanes of ones, and 8 of zeros.
func (g *vec) tails() Mem {
	const key = 0xFFFF0000 // of no constant
	all := globals[g.Context]
	if all == nil {
		all = map[uint32]Mem{}
		globals[g.Context] = all
	}
	if _, ok := all[key]; !ok {
		all[key] = g.StaticGlobal("tails")
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 16 {
			g.AppendDatum(U32([]uint32{0xFFFFFFFF, 0}[i/8]))
		}
	}
	return all[key]
}

// load loads the lanes of the mask; the others are 0, and no memory of theirs is read.
func (t *tail) load(from Mem, to vector) {
	switch {
	case t == nil:
		t.g.VMOVUPS(from, to)
	case t.k != nil:
		t.g.VMOVUPS_Z(from, t.k, to)
	default:
		t.g.VMASKMOVPS(from, t.mask, to)
	}
}

func (t *tail) store(from vector, to Mem) {
	if t.k != nil {
		t.g.VMOVUPS(from, t.k, to)
	} else {
		t.g.VMASKMOVPS(from, t.mask, to)
	}
}

// load and store move whole vectors, or with a tail its lanes.
func (g *vec) load(from Mem, t *tail) vector {
	v := g.new()
	if t == nil {
		g.VMOVUPS(from, v)
	} else {
		t.load(from, v)
	}
	return v
}

func (g *vec) store(from vector, to Mem, t *tail) {
	if t == nil {
		g.VMOVUPS(from, to)
	} else {
		t.store(from, to)
	}
}
