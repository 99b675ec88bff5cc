package main

import "github.com/krait-ml/krait/kernels/cpu/gen/common"

// short generates the products whose sums are in float64. They are in the order of AVX2, whose
// vectors of 4 are two registers here, and have its bits.
func short(f *file) {
	g := f.function("packShort", "(to *float64, from *float32, n, apart int)", "widens n vectors of 4 elements, and writes them apart elements apart.")
	to, from, n, apart := g.param("to"), g.param("from"), g.param("n"), g.stride("apart", 8)
	g.loop(n, 1, func() {
		v := g.load(from, 16)
		g.do("FSTPQ (F%d, F%d), (R%d)", g.double(v, 0), g.double(v, 1), to)
		g.do("ADD R%d, R%d, R%d", apart, to, to)
	})
	for _, of := range formats {
		for _, tokens := range []int{1, mostTokens} {
			(&product{format: of, rowCount: 4, tokens: tokens, f64: true}).short(f)
		}
	}
}

func (g *product) short(f *file) {
	name, signature, doc := common.Short(g.format, "NEON", g.tokens)
	g.neon = f.function(name, signature, doc)
	ws := g.stride("ws", g.format.Size)
	g.w, g.x = g.rows(g.param("w"), ws, 4), []*register{g.param("x")}
	sums, left := g.sums(), g.param("k")
	g.loop(left, 4, func() { g.vectors(sums) })
	var rows [][2]*register // of a token: two rows in each
	for _, s := range sums {
		four := func(r int) *register { return g.of("faddp", "2d", s[r][0], s[r][1]) }
		rows = append(rows, [2]*register{g.of("faddp", "2d", four(0), four(1)), g.of("faddp", "2d", four(2), four(3))})
	}
	g.loop(left, 1, func() { g.columns(rows) })
	g.set(rows, ws)
}

// columns adds the products of what does not fill a vector, one of each row.
func (g *product) columns(sums [][2]*register) {
	var w [4]*register
	for r, at := range g.w {
		if g.format == f32 {
			w[r] = g.load(at, 4)
			continue
		}
		w[r] = g.widened(g.format, g.load16(at), 0)
	}
	first, second := g.double(g.of("zip1", "4s", w[0], w[1]), 0), g.double(g.of("zip1", "4s", w[2], w[3]), 0)
	for _, s := range sums {
		var x *register
		if g.packed() {
			x = g.load(g.x[0], 8)
		} else {
			x = g.double(g.load(g.x[0], 4), 0)
		}
		g.arm("dup 2d d[0]", x, x)
		g.fma("2d", s[0], first, x)
		g.fma("2d", s[1], second, x)
	}
}

// set writes the sums, of rows that are one only the first.
func (g *product) set(rows [][2]*register, ws *register) {
	at := g.rows(g.param("y"), g.stride("ys", 4), g.tokens)
	g.do("CMP $0, R%d", ws)
	g.branch("BEQ", "single")
	for t, r := range rows {
		g.do("FMOVQ F%d, (R%d)", g.round(r[0], r[1]), at[t])
	}
	g.branch("B", "stored")
	g.at("single")
	for t, r := range rows {
		g.do("FMOVS F%d, (R%d)", g.round(r[0], r[1]), at[t])
	}
	g.at("stored")
}
