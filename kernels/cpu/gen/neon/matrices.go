package main

import "fmt"

// matrices generates products of small matrices, as the generator of AVX2 does, 16 columns wide.
func matrices(f *file) {
	g := f.function("tile16", "(a *float32, ar, ak int, x *float32, xs int, y *float32, ys int, by *float32, bs, rows, k, more int)",
		"sets y[r] = by[r·bs] y[r] + Σ a[r, i] x[i] over k + r·more elements i in order, for rows of 16; without by, the sums alone.")
	m := &multiplier{neon: g, a: g.param("a"), ar: g.stride("ar", 4), ak: g.stride("ak", 4), xs: g.stride("xs", 4),
		y: g.param("y"), ys: g.stride("ys", 4), by: g.param("by"), bs: g.stride("bs", 4), k: g.param("k"), more: g.param("more")}
	rows := g.param("rows")
	for _, n := range []int{6, 1} { // 24 sums at most, with 4 vectors of x
		g.loop(rows, n, func() { m.block(n) })
	}
	transpose(f)
}

type multiplier struct {
	*neon
	a, ar, ak, xs, y, ys, by, bs, k, more *register
}

// block computes n rows, and goes on to those after them.
func (g *multiplier) block(n int) {
	a, x, left := g.rows(g.a, g.ar, n), g.param("x"), g.address()
	sums := make([][4]*register, n)
	for r := range sums {
		sums[r] = [4]*register{g.zero(), g.zero(), g.zero(), g.zero()}
	}
	step := func(from int) {
		v := g.row16(x)
		for r := from; r < n; r++ {
			by := g.peek(a[r], 4)
			g.do("ADD R%d, R%d, R%d", g.ak, a[r], a[r])
			for j := range v {
				g.arm("fmla 4s 4s s[0]", sums[r][j], v[j], by)
			}
		}
		g.do("ADD R%d, R%d, R%d", g.xs, x, x)
	}
	g.do("MOVD R%d, R%d", g.k, left)
	g.loop(left, 1, func() { step(0) })
	if alike := g.label("alike"); n > 1 {
		g.do("CMP $0, R%d", g.more)
		g.branch("BEQ", alike)
		for from := 1; from < n; from++ {
			step(from)
		}
		g.at(alike)
	}
	for range n {
		g.do("ADD R%d, R%d, R%d", g.more, g.k, g.k)
		g.do("ADD R%d, R%d, R%d", g.ar, g.a, g.a)
	}
	g.store(sums)
}

// row16 loads 16 numbers.
func (g *neon) row16(at *register) (v [4]*register) {
	for i := range v {
		v[i] = g.new()
	}
	for i := 0; i < 4; i += 2 {
		g.do(fmt.Sprintf("FLDPQ %d(R%%d), (F%%d, F%%d)", 16*i), at, v[i], v[i+1])
	}
	return v
}

// store takes rows of sums to y, and y and by past them.
func (g *multiplier) store(sums [][4]*register) {
	alone, done := g.label("alone"), g.label("put")
	g.do("CMP $0, R%d", g.by)
	g.branch("BEQ", alone)
	for _, row := range sums {
		by := g.peek(g.by, 4)
		for j, old := range g.row16(g.y) {
			g.arm("fmla 4s 4s s[0]", row[j], old, by)
		}
		g.putRow(row)
		g.do("ADD R%d, R%d, R%d", g.bs, g.by, g.by)
	}
	g.branch("B", done)
	g.at(alone)
	for _, row := range sums {
		g.putRow(row)
	}
	g.at(done)
}

func (g *multiplier) putRow(row [4]*register) {
	g.put16(row, g.y)
	g.do("ADD R%d, R%d, R%d", g.ys, g.y, g.y)
}

// put16 stores 16 numbers.
func (g *neon) put16(v [4]*register, at *register) {
	for i := 0; i < 4; i += 2 {
		g.do(fmt.Sprintf("FSTPQ (F%%d, F%%d), %d(R%%d)", 16*i), v[i], v[i+1], at)
	}
}

// transpose goes by squares of 4.
func transpose(f *file) {
	g := f.function("transpose", "(src *float32, ss int, dst *float32, ds int, rows, cols int)",
		"sets dst[c][r] = src[r][c], for multiples of 4 of rows and columns, at least 4. Rows are ss and ds elements apart.")
	src, ss, dst, ds, rows := g.param("src"), g.stride("ss", 4), g.param("dst"), g.stride("ds", 4), g.param("rows")
	g.at("rows")
	from, to, cols := g.rows(src, ss, 4), g.rows(dst, ds, 1)[0], g.param("cols")
	g.at("columns")
	var v, o [4]*register
	for i := range v {
		v[i] = g.load(from[i], 16)
	}
	for i := range 2 {
		low, high := g.of([]string{"zip1", "zip2"}[i], "4s", v[0], v[1]), g.of([]string{"zip1", "zip2"}[i], "4s", v[2], v[3])
		o[2*i], o[2*i+1] = g.of("zip1", "2d", low, high), g.of("zip2", "2d", low, high)
	}
	for i := range o {
		g.do("FMOVQ F%d, (R%d)", o[i], to)
		g.do("ADD R%d, R%d, R%d", ds, to, to)
	}
	g.countdown(cols, 4, "BNE", "columns")
	for range 4 {
		g.do("ADD R%d, R%d, R%d", ss, src, src)
	}
	g.do("ADD $16, R%d, R%d", dst, dst)
	g.countdown(rows, 4, "BNE", "rows")
}
