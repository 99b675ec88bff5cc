package main

import "fmt"

// mostTokens is how many tokens a tile takes at most: with 4 rows, that is all 32 registers.
const mostTokens = 3

// format is that of weights.
type format struct {
	name, element string
	size          int
}

var (
	f32     = format{"F32", "float32", 4}
	bf16    = format{"BF16", "uint16", 2}
	f16     = format{"F16", "uint16", 2}
	formats = []format{f32, bf16, f16}
)

// gemm generates tiles as the generator of AVX2 does, of vectors that are two registers: lane i of
// 8 sums the elements i, i + 8, …, and halves are added. So whole vectors give the bits of AVX2.
// Elements that fill none go to the first lane, one at a time.
func gemm(f *file) {
	for tokens := 1; tokens <= mostTokens; tokens++ {
		for _, of := range formats {
			(&tile{format: of, rowCount: 4, tokens: tokens}).write(f)
		}
		(&tile{format: f32, rowCount: 1, tokens: tokens}).write(f)
	}
}

type tile struct {
	*neon
	format           format
	rowCount, tokens int
	w, x             []*register // where rows go on
	sums             [][][2]*register
}

func (g *tile) write(f *file) {
	name := fmt.Sprintf("gemm%sx%dx%d", g.format.name, g.rowCount, g.tokens)
	doc := fmt.Sprintf("is gemmF32x4x1NEON for %d rows of x and groups of %d of w.", g.tokens, g.rowCount)
	if name == "gemmF32x4x1" {
		doc = "adds x[t]·w[r] to y[t][r], for 1 row of x and groups of 4 of w, of k elements. Rows are ws, xs and " +
			"ys elements apart. What ahead and those after it ask for is left to the processor."
	}
	g.neon = f.function(name, fmt.Sprintf("(w *%s, ws int, x *float32, xs int, y *float32, ys, k, groups int, ahead uintptr, apart, step int, next uintptr, near int)", g.format.element), doc)
	ws, xs := g.stride("ws", g.format.size), g.stride("xs", 4)
	w, x, y, groups := g.param("w"), g.param("x"), g.param("y"), g.param("groups")
	g.at("group")
	g.w, g.x = g.rows(w, ws, g.rowCount), g.rows(x, xs, g.tokens)
	g.sums = make([][][2]*register, g.tokens)
	for t := range g.sums {
		for range g.rowCount {
			g.sums[t] = append(g.sums[t], [2]*register{g.zero(), g.zero()})
		}
	}
	left := g.param("k")
	g.loop(left, 8, g.vectors)
	if g.format == f32 {
		g.loop(left, 1, g.elements)
	}
	g.store(y)
	g.do(fmt.Sprintf("ADD $%d, R%%d, R%%d", 4*g.rowCount), y, y)
	for range g.rowCount {
		g.do("ADD R%d, R%d, R%d", ws, w, w)
	}
	g.countdown(groups, 1, "BNE", "group")
}

// vectors adds the products of 8 elements. Those of a row of weights are widened once for all
// tokens.
func (g *tile) vectors() {
	var x [][2]*register
	for _, at := range g.x {
		x = append(x, g.load8(f32, at))
	}
	for r, at := range g.w {
		w := g.load8(g.format, at)
		for t := range x {
			for half := range 2 {
				g.fma("4s", g.sums[t][r][half], w[half], x[t][half])
			}
		}
	}
}

// load8 loads 8 elements as f32, and moves on.
func (g *neon) load8(f format, at *register) [2]*register {
	if f == f32 {
		low, high := g.new(), g.new()
		g.do("FLDPQ.P 32(R%d), (F%d, F%d)", at, low, high)
		return [2]*register{low, high}
	}
	halves := g.load(at, 16)
	return [2]*register{g.widened(f, halves, 0), g.widened(f, halves, 1)}
}

// widened is a half of a vector of 16-bit numbers as f32, the lower one first.
func (g *neon) widened(f format, halves *register, half int) *register {
	v, by := g.new(), [2]string{"fcvtl 4s 4h", "fcvtl2 4s 8h"}
	if f == bf16 {
		by = [2]string{"shll 4s 4h #16", "shll2 4s 8h #16"}
	}
	g.arm(by[half], v, halves)
	return v
}

func (g *tile) elements() {
	var x []*register
	for _, at := range g.x {
		x = append(x, g.load(at, 4))
	}
	for r, at := range g.w {
		w := g.load(at, 4)
		for t := range x {
			g.fma("4s", g.sums[t][r][0], w, x[t])
		}
	}
}

// store adds the sums to the result.
func (g *tile) store(y *register) {
	ys := g.stride("ys", 4)
	at := g.rows(y, ys, g.tokens)
	for t, sums := range g.sums {
		var rows [4]*register
		for r := range rows {
			if r < g.rowCount {
				rows[r] = g.of("fadd", "4s", sums[r][0], sums[r][1])
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
