//go:build amd64 || arm64

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// TestProductOfBlocks: products with any columns of some rows, of what ranks have.
func TestProductOfBlocks(t *testing.T) {
	const seed = 31
	for name, p := range vectorProducts() {
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range 400 {
			d := blockTypes()[i%len(blockTypes())]
			n, k, ranks := 1+rng.IntN(20), 1+rng.IntN(2*d.Format().Elems+150), 1+rng.IntN(3)
			rank := rng.IntN(ranks)
			typ, data := splitAlong(rng, d, n, k), drawBlocks(rng, d, n, k)
			w := heldBlocks(t, typ, data, ranks, rank, rng.IntN(32))
			what := fmt.Sprintf("%s, seed %d, case %d: %s, rank %d of %d", name, seed, i, typ, rank, ranks)
			if w.Cols == 0 {
				continue
			}
			row, col := rng.IntN(n), rng.IntN(w.Cols)
			rows, cols, tokens := 1+rng.IntN(n-row), 1+rng.IntN(w.Cols-col), 1+rng.IntN(9)
			x, y := table(graph.F32, tokens, cols, cols+rng.IntN(3), 0), table(graph.F32, tokens, rows, rows+rng.IntN(3), 0)
			fill(&x, func() float32 { return float32(rng.NormFloat64()) })
			fill(&y, func() float32 { return 1e30 })
			p.multiply(&product{w: &w, at: row*w.Cols + col, ws: w.Cols, rows: rows, k: cols, x: x.F32, xs: x.Stride, tokens: tokens, y: y.F32, ys: y.Stride})
			same := table(graph.F32, rows, cols, cols, 0)
			for j := range rows {
				w.Read(same.Row(j), (row+j)*w.Cols+col)
			}
			checkSums(t, what, &x, &same, &y, p.lanes)
		}
	}
}

// TestWiden: what an instruction set widens has the bits of package graph, for any bits of blocks.
func TestWiden(t *testing.T) {
	fillScales()
	rng := rand.New(rand.NewPCG(41, 0))
	for d, with := range vectorBlocks() {
		const n = 40
		f := d.Format()
		data, got := drawBlocks(rng, d, 1, n*f.Elems), make([]float32, n*f.Elems)
		with.widen(&got[0], &data[0], n)
		for i, want := range wide(d, data, 1, n*f.Elems) {
			if math.Float32bits(got[i]) != math.Float32bits(want) {
				t.Fatalf("%s: element %d is %g, want %g", d, i, got[i], want)
			}
		}
	}
}
