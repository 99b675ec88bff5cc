package main

import (
	"fmt"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
)

// mostTokens is how many tokens a tile takes at most: with 4 rows, that is all 32 registers.
const mostTokens = 3

// gemm generates tiles as the generator of AVX2 does, of vectors that are two registers: lane i of
// 8 sums the elements i, i + 8, …, and halves are added. So whole vectors give the bits of AVX2.
// Elements that fill none go to the first lane, one at a time.
func gemm(f *file) {
	for tokens := 1; tokens <= mostTokens; tokens++ {
		for _, of := range formats {
			(&product{format: of, rowCount: 4, tokens: tokens}).tile(f)
		}
		(&product{format: f32, rowCount: 1, tokens: tokens}).tile(f)
	}
}

func (g *product) tile(f *file) {
	name, signature, doc := common.Tile(g.format, "NEON", g.rowCount, g.tokens, "What ahead and those after it ask for is left to the processor.")
	g.neon = f.function(name, signature, doc)
	ws, xs := g.stride("ws", g.format.Size), g.stride("xs", 4)
	w, x, y, groups := g.param("w"), g.param("x"), g.param("y"), g.param("groups")
	g.at("group")
	g.w, g.x = g.rows(w, ws, g.rowCount), g.rows(x, xs, g.tokens)
	sums, left := g.sums(), g.param("k")
	g.loop(left, 8, func() { g.vectors(sums) })
	if g.format == f32 {
		g.loop(left, 1, func() { g.elements(sums) })
	}
	g.add(sums, y)
	g.do(fmt.Sprintf("ADD $%d, R%%d, R%%d", 4*g.rowCount), y, y)
	for range g.rowCount {
		g.do("ADD R%d, R%d, R%d", ws, w, w)
	}
	g.countdown(groups, 1, "BNE", "group")
}

// elements adds those of what does not fill a vector.
func (g *product) elements(sums [][][2]*register) {
	var x []*register
	for _, at := range g.x {
		x = append(x, g.load(at, 4))
	}
	for r, at := range g.w {
		w := g.load(at, 4)
		for t := range x {
			g.fma("4s", sums[t][r][0], w, x[t])
		}
	}
}

// add adds the sums to the result.
func (g *product) add(sums [][][2]*register, y *register) {
	ys := g.stride("ys", 4)
	at := g.rows(y, ys, g.tokens)
	for t, s := range sums {
		var rows [4]*register
		for r := range rows {
			if r < g.rowCount {
				rows[r] = g.of("fadd", "4s", s[r][0], s[r][1])
			} else {
				rows[r] = rows[0]
			}
		}
		sum := g.of("faddp", "4s", g.pairs(rows[0], rows[1]), g.pairs(rows[2], rows[3]))
		op := "FMOVQ"
		if g.rowCount == 1 {
			op = "FMOVS"
		}
		old := g.new()
		g.do(op+" (R%d), F%d", at[t], old)
		g.do(op+" F%d, (R%d)", g.of("fadd", "4s", old, sum), at[t])
	}
}
