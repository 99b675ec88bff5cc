package main

import (
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
		{newVec(c, avx2), "tile16", 2},
		{newVec(c, avx512), "tile16", 1},
		{newVec(c, avx512), "tile64", 4},
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
}

func (g *multiplier) write() {
	g.function(g.name, "(a *float32, ar, ak int, x *float32, xs int, y *float32, ys int, by *float32, bs, rows, k, more int)",
		"adds products to rows of as many columns as its name says: y[r] = by[r·bs] y[r] + Σ a[r·ar + i·ak] x[i],",
		"summed in the order of i by fused multiplications, where row r has k + r·more products, and more is 0 or 1.",
		"Without by, y[r] is the sum alone. Rows of x and y are xs and ys elements apart.")
	a, ar, ak, xs := g.param("a"), g.stride("ar"), g.stride("ak"), g.stride("xs")
	ar3, by := g.triple(ar), g.param("by")
	y, rows, k := g.param("y"), g.param("rows"), g.param("k")
	line := [tileRows]Mem{{}, {Index: ar, Scale: 1}, {Index: ar, Scale: 2}}

	var sums [tileRows][]vector // of all blocks, or each would want its own
	for r := range sums {
		for range g.width {
			sums[r] = append(sums[r], g.new())
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
		at, x, left := g.GP64(), g.param("x"), g.GP64()
		g.MOVQ(a, at)
		g.MOVQ(k, left)
		upper := g.GP64()
		if n > 3 {
			g.LEAQ(Mem{Base: a, Index: ar3, Scale: 1}, upper)
		}
		g.TESTQ(left, left)
		g.JZ(LabelRef(name + "_common"))
		step := func(from int) {
			var xv []vector
			for j := range g.width {
				xv = append(xv, g.new())
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
		g.CMPQ(g.memory("more"), U8(0))
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
func (g *multiplier) put(name string, y, by reg.Register, sums [][]vector) {
	ys, bs := g.stride("ys"), g.stride("bs")
	g.TESTQ(by, by)
	g.JZ(LabelRef(name + "_alone"))
	for _, row := range sums {
		v := g.number(Mem{Base: by})
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
	var v, t, o [4]vector
	for i := range 4 {
		v[i], t[i], o[i] = g.YMM(), g.YMM(), g.YMM()
		x := g.XMM()
		g.VMOVUPS(strided(lower, ss, ss3)[i], x)
		g.VINSERTF128(U8(1), strided(upper, ss, ss3)[i], x.AsY(), v[i])
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
		g.VMOVUPS(o[i], strided(to, ds, ds3)[i])
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
	g.function("widenRows"+f.name, "(dst *float32, ds int, src *uint16, ss int, rows, n int)",
		"widens rows of n numbers, a multiple of 8, at least 8.")
	dst, src, rows, n := g.param("dst"), g.param("src"), g.param("rows"), g.param("n")
	ds, ss := g.param("ds"), g.param("ss")
	g.SHLQ(U8(2), ds)
	g.SHLQ(U8(1), ss)
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
