package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
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
	held   map[constant]reg.VecVirtual // constants that are in registers
	wanted map[constant]int            // of a rehearsal: how often it asked for a constant
	ends   int                         // labels so far
	tight  bool                        // registers are few: chains are written one after the other
}

type vector = reg.VecVirtual

func newVec(c *build.Context, set isa) *vec {
	return &vec{Context: c, set: set, held: map[constant]reg.VecVirtual{}}
}

func (g *vec) wide() bool { return g.set.lanes == 16 }

func (g *vec) bytes() int { return 4 * g.set.lanes }

func (g *vec) new() vector {
	if g.wide() {
		return g.ZMM()
	}
	return g.YMM()
}

// function begins one.
func function(c *build.Context, name, signature string, doc ...string) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.Pragma("noescape")
	c.Doc(doc...)
	c.SignatureExpr("func" + signature)
}

// function begins one of the instruction set.
func (g *vec) function(name, signature string, doc ...string) {
	name += g.set.name
	doc[0] = name + " " + doc[0]
	function(g.Context, name, signature, doc...)
}

func (g *vec) end() {
	g.VZEROUPPER()
	g.RET()
}

// param is a parameter in a register.
func (g *vec) param(name string) reg.Register { return g.Load(g.Param(name), g.GP64()) }

// stride is a parameter in elements of f32, in bytes.
func (g *vec) stride(name string) reg.Register {
	r := g.param(name)
	g.SHLQ(U8(2), r)
	return r
}

// ahead is the address of the row that is some rows on, a power of 2, to fetch it: rows are pages
// apart, where no processor fetches them by itself.
func (g *vec) ahead(row Op, stride reg.Register, rows int) reg.Register {
	at := g.GP64()
	g.MOVQ(stride, at)
	g.SHLQ(U8(bits.Len(uint(rows))-1), at)
	g.ADDQ(row, at)
	return at
}

// triple is three times a stride.
func (g *vec) triple(stride reg.Register) reg.Register {
	r := g.GP64()
	g.LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r)
	return r
}

// strided are four rows from base on; s3 is three strides.
func strided(base, s, s3 reg.Register) [4]Mem {
	return [4]Mem{{Base: base}, {Base: base, Index: s, Scale: 1}, {Base: base, Index: s, Scale: 2}, {Base: base, Index: s3, Scale: 1}}
}

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

// constant is a number that all lanes have, of 4 or 8 bytes.
type constant struct {
	bits uint64
	size int
}

// globals are the constants of a file, in memory.
var globals = map[*build.Context]map[constant]Mem{}

// global is a constant in memory, in each lane of a YMM.
func (g *vec) global(c constant) Mem {
	return g.data(c, fmt.Sprintf("lanes%0*X", 2*c.size, c.bits), func(i int) (Constant, bool) {
		if c.size == 8 {
			return U64(c.bits), i < 4
		}
		return U32(c.bits), i < 8
	})
}

// data is memory that has a key, and is written once.
func (g *vec) data(key constant, name string, element func(i int) (c Constant, ok bool)) Mem {
	all := globals[g.Context]
	if all == nil {
		all = map[constant]Mem{}
		globals[g.Context] = all
	}
	if _, ok := all[key]; !ok {
		all[key] = g.StaticGlobal(name)
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := 0; ; i++ {
			c, ok := element(i)
			if !ok {
				break
			}
			g.AppendDatum(c)
		}
	}
	return all[key]
}

// static is a number in every lane of 32 bytes of memory that has a name.
func (g *vec) static(name string, v Constant) Mem {
	m := g.StaticGlobal(name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := 0; i < 32; i += v.Bytes() {
		g.AddDatum(i, v)
	}
	return m
}

// constant is one as the first operand of an operation: where it is held, its register;
// else in memory, or broadcast from there.
func (g *vec) constant(c constant) Op {
	if g.wanted != nil {
		g.wanted[c]++
	}
	if r, ok := g.held[c]; ok {
		return r
	}
	if g.wide() {
		return g.broadcast(c)
	}
	return g.global(c)
}

func (g *vec) broadcast(c constant) vector {
	v := g.new()
	if c.size == 8 {
		g.VBROADCASTSD(g.global(c), v)
	} else {
		g.VBROADCASTSS(g.global(c), v)
	}
	return v
}

func (g *vec) bits(bits uint32) Op { return g.constant(constant{uint64(bits), 4}) }

func (g *vec) c(v float32) Op { return g.bits(math.Float32bits(v)) }

// hold puts constants that body asks for into registers, if enough are free: at most
// n, those that it asks for most often.
func (g *vec) hold(n int, body func(g *vec)) {
	if !g.wide() {
		return
	}
	rehearsal := newVec(build.NewContext(), g.set)
	rehearsal.wanted = map[constant]int{}
	rehearsal.Function("rehearsal")
	body(rehearsal)
	most := slices.SortedFunc(maps.Keys(rehearsal.wanted), func(a, b constant) int {
		return cmp.Or(rehearsal.wanted[b]-rehearsal.wanted[a], cmp.Compare(a.bits, b.bits))
	})
	for _, c := range most[:min(n, len(most))] {
		g.held[c] = g.broadcast(c)
	}
}

// number is a number of memory, or of the lowest lane of a register, in all lanes.
func (g *vec) number(from Op) vector {
	v := g.new()
	g.VBROADCASTSS(from, v)
	return v
}

// widen loads numbers of a format as f32, as many as a register has lanes.
func (g *vec) widen(f format, from Op, to vector) {
	switch f {
	case f32:
		g.VMOVUPS(from, to)
	case bf16:
		g.VPMOVZXWD(from, to)
		g.VPSLLD(U8(16), to, to)
	case f16:
		g.VCVTPH2PS(from, to)
	}
}

// copy is a register with a constant, or with what another has.
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
	g.clear(v)
	return v
}

func (g *vec) clear(v vector) {
	if g.wide() {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
}

// transposed are the columns of 4x4 numbers in each 128 bits of four vectors.
func (g *vec) transposed(m [4]vector) [4]vector {
	pair := func(op func(...Op), a, b vector) vector {
		v := g.YMM()
		if a.Size() == 64 {
			v = g.ZMM()
		}
		op(b, a, v)
		return v
	}
	a, b := pair(g.VUNPCKLPS, m[0], m[1]), pair(g.VUNPCKLPS, m[2], m[3])
	c, d := pair(g.VUNPCKHPS, m[0], m[1]), pair(g.VUNPCKHPS, m[2], m[3])
	return [4]vector{pair(g.VUNPCKLPD, a, b), pair(g.VUNPCKHPD, a, b), pair(g.VUNPCKLPD, c, d), pair(g.VUNPCKHPD, c, d)}
}

// together writes the instructions of n chains in turns, so that one does not wait for itself.
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
	if g.tight {
		f.Nodes = append(f.Nodes, slices.Concat(chains...)...)
		return
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

var exp2Series = common.Exp2

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
	return g.data(constant{}, "tails", func(i int) (Constant, bool) {
		return U32([]uint32{math.MaxUint32, 0}[i/8%2]), i < 16
	})
}

// load loads the lanes of the mask; the others are 0, and no memory of theirs is read.
func (t *tail) load(from Mem, to vector) {
	if t.k != nil {
		t.g.VMOVUPS_Z(from, t.k, to)
	} else {
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
