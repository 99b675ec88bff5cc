package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	tileRows    = 6  // of a tile that is in registers
	tileColumns = 16 // of the narrowest tile
)

// matrices generates products of small matrices that lie anyhow, and what moves such ones.
func matrices(c *build.Context) {
	for _, t := range []multiplier{
		{emitter{c, avx2}, "tile16AVX2", 2},
		{emitter{c, avx512}, "tile16AVX512", 1},
		{emitter{c, avx512}, "tile64AVX512", 4},
	} {
		t.function()
	}
	v := emitter{c, avx2}
	v.transpose()
	v.prefetch()
	for _, f := range formats[1:] {
		v.widenRow(f)
	}
}

// emitter is what functions of an instruction set share.
type emitter struct {
	*build.Context
	set isa
}

func (g *emitter) begin(name, signature string, doc ...string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	g.Doc(doc...)
	g.SignatureExpr(signature)
}

func (g *emitter) end() {
	g.VZEROUPPER()
	g.RET()
}

func (g *emitter) vector() reg.VecVirtual {
	if g.set.lanes == 16 {
		return g.ZMM()
	}
	return g.YMM()
}

func (g *emitter) zero() reg.VecVirtual {
	v := g.vector()
	g.clear(v)
	return v
}

func (g *emitter) clear(v reg.VecVirtual) {
	if g.set.lanes == 16 {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
}

// bytes is a parameter in elements of f32, in bytes.
func (g *emitter) bytes(name string) reg.Register {
	r := g.Load(g.Param(name), g.GP64())
	g.SHLQ(U8(2), r)
	return r
}

func (g *emitter) pointer(name string) reg.Register { return g.Load(g.Param(name), g.GP64()) }

// triple is three times a stride.
func (g *emitter) triple(stride reg.Register) reg.Register {
	r := g.GP64()
	g.LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r)
	return r
}

// multiplier is of one function: columns are a number of vectors.
type multiplier struct {
	emitter
	name  string
	width int
}

func (g *multiplier) function() {
	g.begin(g.name, "func(a *float32, ar, ak int, x *float32, xs int, y *float32, ys int, by *float32, bs, rows, k, more int)",
		g.name+" adds products to rows of as many columns as its name says: y[r] = by[r·bs] y[r] + Σ a[r·ar + i·ak] x[i],",
		"summed in the order of i by fused multiplications, where row r has k + r·more products, and more is 0 or 1.",
		"Without by, y[r] is the sum alone. Rows of x and y are xs and ys elements apart.")
	a, ar, ak, xs := g.pointer("a"), g.bytes("ar"), g.bytes("ak"), g.bytes("xs")
	ar3, by := g.triple(ar), g.pointer("by")
	y, rows, k := g.pointer("y"), g.pointer("rows"), g.pointer("k")
	line := [tileRows]Mem{{}, {Index: ar, Scale: 1}, {Index: ar, Scale: 2}}

	var sums [tileRows][]reg.VecVirtual // of all blocks, or each would want its own
	for r := range sums {
		for range g.width {
			sums[r] = append(sums[r], g.vector())
		}
	}
	block := func(name string, n int) {
		g.Label(name)
		g.CMPQ(rows, U8(n))
		g.JLT(LabelRef(name + "_none"))
		for _, row := range sums[:n] {
			for _, s := range row {
				g.clear(s)
			}
		}
		at, x, left := g.GP64(), g.pointer("x"), g.GP64()
		g.MOVQ(a, at)
		g.MOVQ(k, left)
		upper := g.GP64()
		if n > 3 {
			g.LEAQ(Mem{Base: a, Index: ar3, Scale: 1}, upper)
		}
		g.TESTQ(left, left)
		g.JZ(LabelRef(name + "_common"))
		step := func(from int) {
			var xv []reg.VecVirtual
			for j := range g.width {
				xv = append(xv, g.vector())
				g.VMOVUPS(Mem{Base: x, Disp: j * 4 * g.set.lanes}, xv[j])
			}
			for r := from; r < n; r++ {
				m := line[r%3]
				m.Base = at
				if r >= 3 {
					m.Base = upper
				}
				g.products(m, xv, sums[r])
			}
			g.ADDQ(ak, at)
			if n > 3 {
				g.ADDQ(ak, upper)
			}
			g.ADDQ(xs, x)
		}
		g.Label(name + "_next")
		step(0)
		g.DECQ(left)
		g.JNZ(LabelRef(name + "_next"))
		g.Label(name + "_common")
		more, err := g.Param("more").Resolve()
		if err != nil {
			panic(err)
		}
		g.CMPQ(more.Addr, U8(0))
		g.JZ(LabelRef(name + "_summed"))
		for from := 1; from < n; from++ {
			step(from)
		}
		g.ADDQ(U8(n), k)
		g.Label(name + "_summed")
		g.put(name, y, by, sums[:n])
		g.SUBQ(U8(n), rows)
		for range n {
			g.ADDQ(ar, a)
		}
		g.JMP(LabelRef(name))
		g.Label(name + "_none")
	}
	if g.width > 1 {
		block("six", 6)
	}
	block("four", 4)
	block("one", 1)
	g.end()
}

// products adds a number times the vectors.
func (g *multiplier) products(a Mem, x, sums []reg.VecVirtual) {
	if len(sums) == 1 && g.set.lanes == 16 {
		g.VFMADD231PS_BCST(a, x[0], sums[0])
		return
	}
	v := g.vector()
	g.VBROADCASTSS(a, v)
	for j, s := range sums {
		g.VFMADD231PS(x[j], v, s)
	}
}

// put takes rows of sums to y, and y and by past them.
func (g *multiplier) put(name string, y, by reg.Register, sums [][]reg.VecVirtual) {
	ys, bs := g.bytes("ys"), g.bytes("bs")
	g.TESTQ(by, by)
	g.JZ(LabelRef(name + "_alone"))
	for _, row := range sums {
		v := g.vector()
		g.VBROADCASTSS(Mem{Base: by}, v)
		for j, s := range row {
			at := Mem{Base: y, Disp: j * 4 * g.set.lanes}
			g.VFMADD231PS(at, v, s)
			g.VMOVUPS(s, at)
		}
		g.ADDQ(ys, y)
		g.ADDQ(bs, by)
	}
	g.JMP(LabelRef(name + "_put"))
	g.Label(name + "_alone")
	for _, row := range sums {
		for j, s := range row {
			g.VMOVUPS(s, Mem{Base: y, Disp: j * 4 * g.set.lanes})
		}
		g.ADDQ(ys, y)
	}
	g.Label(name + "_put")
}

// transpose is by squares of 8: of four columns of eight rows at a time, row i and row
// i + 4 are halves of a vector.
func (g *emitter) transpose() {
	g.begin("transposeAVX2", "func(src *float32, ss int, dst *float32, ds int, rows, cols int)",
		"transposeAVX2 sets dst[c][r] = src[r][c], for multiples of 8 of rows and columns, at least 8. Rows are ss and ds",
		"elements apart.")
	src, ss, dst, ds, rows := g.pointer("src"), g.bytes("ss"), g.pointer("dst"), g.bytes("ds"), g.pointer("rows")
	ss3, ds3 := g.triple(ss), g.triple(ds)
	g.Label("rows")
	lower, upper, to, cols := g.GP64(), g.GP64(), g.GP64(), g.pointer("cols")
	g.MOVQ(src, lower)
	g.LEAQ(Mem{Base: src, Index: ss, Scale: 4}, upper)
	g.MOVQ(dst, to)
	g.Label("columns")
	at := func(base, s, s3 reg.Register, i int) Mem {
		return [4]Mem{{Base: base}, {Base: base, Index: s, Scale: 1}, {Base: base, Index: s, Scale: 2}, {Base: base, Index: s3, Scale: 1}}[i]
	}
	var v, t, o [4]reg.VecVirtual
	for i := range 4 {
		v[i], t[i], o[i] = g.YMM(), g.YMM(), g.YMM()
		x := g.XMM()
		g.VMOVUPS(at(lower, ss, ss3, i), x)
		g.VINSERTF128(U8(1), at(upper, ss, ss3, i), x.AsY(), v[i])
	}
	for i := range 2 {
		g.VUNPCKLPS(v[2*i+1], v[2*i], t[2*i])
		g.VUNPCKHPS(v[2*i+1], v[2*i], t[2*i+1])
	}
	for i := range 2 {
		g.VUNPCKLPD(t[i+2], t[i], o[2*i])
		g.VUNPCKHPD(t[i+2], t[i], o[2*i+1])
	}
	for i := range 4 {
		g.VMOVUPS(o[i], at(to, ds, ds3, i))
	}
	g.ADDQ(U8(16), lower)
	g.ADDQ(U8(16), upper)
	g.LEAQ(Mem{Base: to, Index: ds, Scale: 4}, to)
	g.SUBQ(U8(4), cols)
	g.JNZ(LabelRef("columns"))
	g.LEAQ(Mem{Base: src, Index: ss, Scale: 8}, src)
	g.ADDQ(U8(32), dst)
	g.SUBQ(U8(8), rows)
	g.JNZ(LabelRef("rows"))
	g.end()
}

// widenRow is a loop over rows, and eight elements of them at a time.
func (g *emitter) widenRow(f format) {
	name := "widenRows" + f.name + "AVX2"
	g.begin(name, "func(dst *float32, ds int, src *uint16, ss int, rows, n int)",
		name+" widens rows of n numbers, a multiple of 8, at least 8.")
	dst, src, rows, n := g.pointer("dst"), g.pointer("src"), g.pointer("rows"), g.pointer("n")
	ds, ss := g.pointer("ds"), g.pointer("ss")
	g.SHLQ(U8(2), ds)
	g.SHLQ(U8(1), ss)
	g.Label("rows")
	to, from, left := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(dst, to)
	g.MOVQ(src, from)
	g.MOVQ(n, left)
	g.Label("next")
	v := g.YMM()
	if f.name == "F16" {
		g.VCVTPH2PS(Mem{Base: from}, v)
	} else {
		g.VPMOVZXWD(Mem{Base: from}, v)
		g.VPSLLD(U8(16), v, v)
	}
	g.VMOVUPS(v, Mem{Base: to})
	g.ADDQ(U8(32), to)
	g.ADDQ(U8(16), from)
	g.SUBQ(U8(8), left)
	g.JNZ(LabelRef("next"))
	g.ADDQ(ds, dst)
	g.ADDQ(ss, src)
	g.DECQ(rows)
	g.JNZ(LabelRef("rows"))
	g.end()
}

// constant is a number in every lane of 32 bytes of memory.
func (g *emitter) constant(name string, v Constant) Mem {
	m := g.StaticGlobal(name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := 0; i < 32; i += v.Bytes() {
		g.AddDatum(i, v)
	}
	return m
}

// prefetch asks for memory that is wanted soon.
func (g *emitter) prefetch() {
	g.begin("prefetchAVX2", "func(x *float32, xs, rows, cols int)", "prefetchAVX2 brings rows of as many bytes as 4 times cols into the core's cache.")
	x, xs, rows := g.pointer("x"), g.bytes("xs"), g.pointer("rows")
	cols, at := g.bytes("cols"), g.GP64()
	g.Label("rows")
	g.XORQ(at, at)
	g.Label("lines")
	g.PREFETCHT1(Mem{Base: x, Index: at, Scale: 1})
	g.ADDQ(U8(64), at)
	g.CMPQ(at, cols)
	g.JLT(LabelRef("lines"))
	g.ADDQ(xs, x)
	g.DECQ(rows)
	g.JNZ(LabelRef("rows"))
	g.end()
}
