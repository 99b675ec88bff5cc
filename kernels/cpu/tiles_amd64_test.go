package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestTiles multiplies through tiles what is too short for it elsewhere.
func TestTiles(t *testing.T) {
	if !slices.Contains(ISAs(), "amx") {
		t.Skip("this machine has no AMX")
	}
	exact, rounding, long := tiled{3, 1}.kernel(), tiled{1, 1}.kernel(), tiled{3, 3}.kernel()
	checkTiles(t, exact, graph.BF16, lanes["amx"], 0, nil)
	checkSizes(t, exact, graph.BF16, lanes["amx"], 0, 400)
	checkTiles(t, long, graph.F32, lanes["amx"], 0, nil)
	checkSizes(t, long, graph.F32, lanes["amx"], 0, 400)
	checkTiles(t, rounding, graph.BF16, lanes["amx"], 0, func(x []float32) {
		for i, v := range x {
			x[i] = roundedBF16(v)
		}
	})
}

// TestTilesRoundingSpecial: rounding makes no number of what is none, nor none of a number.
func TestTilesRoundingSpecial(t *testing.T) {
	if !slices.Contains(ISAs(), "amx") {
		t.Skip("this machine has no AMX")
	}
	nan, inf := math.Float32frombits(0x7fffffff), float32(math.Inf(1))
	for _, tokens := range []int{1, 3} {
		for _, k := range []int{1, 40} {
			for _, v := range []float32{nan, -nan, inf, -inf, 0, 0x1p-149, -0x1p-130, 0x1.fep127} {
				x, w, y := table(graph.F32, tokens, k, k, 0), table(graph.BF16, 1, k, k, 0), table(graph.F32, tokens, 1, 1, 0)
				w.Write(k-1, []float32{1})
				x.Row(tokens - 1)[k-1] = v
				runAll(tiled{1, 1}.kernel(), &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}})
				if got := y.Row(tokens - 1)[0]; got != v && (got == got || v == v) {
					t.Errorf("%d tokens, sums of %d: %g gives %g", tokens, k, v, got)
				}
			}
		}
	}
}

// roundedBF16 is the nearest number in bf16, of two the even one.
func roundedBF16(v float32) float32 {
	bits := math.Float32bits(v)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

// BenchmarkTiles is what the tiles of a core can do, for [BenchmarkMatmul] to be held
// against: exact products of bf16 weights take three of them.
func BenchmarkTiles(b *testing.B) {
	if !slices.Contains(ISAs(), "amx") {
		b.Skip("this machine has no AMX")
	}
	const n = 1000
	var work amxWork
	work.configure(4*tileTokens, pairRows)
	for b.Loop() {
		amxPeak(&work.palette, n)
	}
	b.ReportMetric(6*n*16*16*64*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
