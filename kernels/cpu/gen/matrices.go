package main

import (
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const tileRows = 6 // of a tile that is in registers

// matrices generates products of small matrices that lie anyhow, and what moves such ones.
func matrices(c *build.Context) {
	for _, t := range []multiplier{
		{vec: newVec(c, avx2), name: "tile16", width: 2},
		{vec: newVec(c, avx512), name: "tile16", width: 1},
		{vec: newVec(c, avx512), name: "tile64", width: 4},
	} {
		t.write()
	}
	v := newVec(c, avx2)
	v.transpose()
	v.prefetch()
	for _, f := range formats[1:] {
		v.widenRow(f)
	}
}

// multiplier is of one function: columns are a number of vectors.
type multiplier struct {
	*vec
	name  string
	width int

	a, ar, ak, xs, by, y, k reg.Register
	sums                    [tileRows][]vector
}

func (g *multiplier) write() {
	g.function(g.name, "(a *float32, ar, ak int, x *float32, xs int, y *float32, ys int, by *float32, bs, rows, k, more int)",
		"adds products to rows of as many columns as its name says: y[r] = by[r·bs] y[r] + Σ a[r·ar + i·ak] x[i],",
		"summed in the order of i by fused multiplications, where row r has k + r·more products, and more is 0 or 1.",
		"Without by, y[r] is the sum alone. Rows of x and y are xs and ys elements apart.")
	g.a, g.ar, g.ak, g.xs = g.param("a"), g.stride("ar"), g.stride("ak"), g.stride("xs")
	g.by, g.y, g.k = g.param("by"), g.param("y"), g.param("k")
	rows := g.param("rows")
	for r := range g.sums { // of all blocks, or each would want its own
		for range g.width {
			g.sums[r] = append(g.sums[r], g.new())
		}
	}
	blocks := []int{6, 4, 1}
	if g.width == 1 {
		blocks = blocks[1:]
	}
	for _, n := range blocks {
		g.loop("rows", rows, n, func() { g.block(n) })
	}
	g.end()
}

// block computes n rows, and goes on to those after them.
func (g *multiplier) block(n int) {
	for _, row := range g.sums[:n] {
		for _, s := range row {
			g.clear(s)
		}
	}
	at, x, left := g.GP64(), g.param("x"), g.GP64()
	g.MOVQ(g.a, at)
	g.MOVQ(g.k, left)
	a := g.linesFrom(at, g.ar, n)
	next, common, summed := g.label("next"), g.label("common"), g.label("summed")
	g.TESTQ(left, left)
	g.JZ(LabelRef(common))
	g.Label(next)
	g.step(0, n, a, x)
	g.DECQ(left)
	g.JNZ(LabelRef(next))
	g.Label(common)
	g.CMPQ(g.memory("more"), U8(0))
	g.JZ(LabelRef(summed))
	for from := 1; from < n; from++ {
		g.step(from, n, a, x)
	}
	g.ADDQ(U8(n), g.k)
	g.Label(summed)
	g.put(g.sums[:n])
	for range n {
		g.ADDQ(g.ar, g.a)
	}
}

// step adds the products of an element of the rows from one up to n.
func (g *multiplier) step(from, n int, a lines, x reg.Register) {
	var v []vector
	for j := range g.width {
		v = append(v, g.load(Mem{Base: x, Disp: j * g.bytes()}, nil))
	}
	for r := from; r < n; r++ {
		g.products(a.at(r), v, g.sums[r])
	}
	a.move(g.ADDQ, g.ak)
	g.ADDQ(g.xs, x)
}

// products adds a number times the vectors.
func (g *multiplier) products(a Mem, x, sums []vector) {
	if len(sums) == 1 && g.set.lanes == 16 {
		g.VFMADD231PS_BCST(a, x[0], sums[0])
		return
	}
	v := g.number(a)
	for j, s := range sums {
		g.VFMADD231PS(x[j], v, s)
	}
}

// put takes rows of sums to y, and y and by past them.
func (g *multiplier) put(sums [][]vector) {
	ys, bs := g.stride("ys"), g.stride("bs")
	alone, done := g.label("alone"), g.label("put")
	g.TESTQ(g.by, g.by)
	g.JZ(LabelRef(alone))
	for _, row := range sums {
		v := g.number(Mem{Base: g.by})
		for j, s := range row {
			at := Mem{Base: g.y, Disp: j * g.bytes()}
			g.VFMADD231PS(at, v, s)
			g.VMOVUPS(s, at)
		}
		g.ADDQ(ys, g.y)
		g.ADDQ(bs, g.by)
	}
	g.JMP(LabelRef(done))
	g.Label(alone)
	for _, row := range sums {
		for j, s := range row {
			g.VMOVUPS(s, Mem{Base: g.y, Disp: j * g.bytes()})
		}
		g.ADDQ(ys, g.y)
	}
	g.Label(done)
}

// transpose is by squares of 8: of four columns of eight rows at a time, row i and row
// i + 4 are halves of a vector.
func (g *vec) transpose() {
	g.function("transpose", "(src *float32, ss int, dst *float32, ds int, rows, cols int)",
		"sets dst[c][r] = src[r][c], for multiples of 8 of rows and columns, at least 8. Rows are ss and ds",
		"elements apart.")
	src, ss, dst, ds, rows := g.param("src"), g.stride("ss"), g.param("dst"), g.stride("ds"), g.param("rows")
	ss3, ds3 := g.triple(ss), g.triple(ds)
	g.Label("rows")
	lower, upper, to, cols := g.GP64(), g.GP64(), g.GP64(), g.param("cols")
	g.MOVQ(src, lower)
	g.LEAQ(Mem{Base: src, Index: ss, Scale: 4}, upper)
	g.MOVQ(dst, to)
	g.Label("columns")
	var v [4]vector
	for i := range v {
		v[i] = g.quadsOf([4]Mem{strided(lower, ss, ss3)[i], strided(upper, ss, ss3)[i]})
	}
	for i, column := range g.transposed(v) {
		g.VMOVUPS(column, strided(to, ds, ds3)[i])
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
func (g *vec) widenRow(f format) {
	g.function("widenRows"+f.Name, "(dst *float32, ds int, src *uint16, ss int, rows, n int)",
		"widens rows of n numbers, a multiple of 8, at least 8.")
	dst, src, rows, n := g.param("dst"), g.param("src"), g.param("rows"), g.param("n")
	ds, ss := g.stride("ds"), g.strideOf(f, "ss")
	g.Label("rows")
	to, from, left := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(dst, to)
	g.MOVQ(src, from)
	g.MOVQ(n, left)
	g.Label("next")
	v := g.YMM()
	g.widen(f, Mem{Base: from}, v)
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

// prefetch asks for memory that is wanted soon.
func (g *vec) prefetch() {
	g.function("prefetch", "(x *float32, xs, rows, cols int)", "brings rows of as many bytes as 4 times cols into the core's cache.")
	x, xs, rows := g.param("x"), g.stride("xs"), g.param("rows")
	cols, at := g.stride("cols"), g.GP64()
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
