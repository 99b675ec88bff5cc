package cpu

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// lanes says how the sums of an instruction set are taken apart.
var lanes = map[string]int{"plain": 1, "avx2": 8, "avx512": 16, "avx512_bf16": 16, "amx": 16, "neon": 8}

// table is a tensor of rows, stride elements apart, that begins at an element of its memory.
func table(d graph.DType, rows, cols, stride, at int) kernels.Tensor {
	x := kernels.Tensor{DType: d, Dims: [graph.MaxRank]int{rows, cols, 1, 1}, Cols: cols, Stride: stride}
	n := max(0, rows-1)*stride + cols
	switch d {
	case graph.F32:
		x.F32 = make([]float32, at+n)[at:]
	case graph.F8:
		x.U8 = make([]byte, at+n)[at:]
	default:
		x.U16 = make([]uint16, at+n)[at:]
	}
	return x
}

// fill fills all memory of a tensor, also between rows.
func fill(x *kernels.Tensor, value func() float32) {
	values := make([]float32, max(len(x.F32), len(x.U16), len(x.U8)))
	for i := range values {
		values[i] = value()
	}
	x.Write(0, values)
}

// part is tokens from to to of x.
func part(x kernels.Tensor, from, to int) kernels.Tensor {
	x.F32 = x.F32[min(len(x.F32), from*x.Stride):]
	x.Dims[0] = to - from
	return x
}

var weightTypes = []graph.DType{graph.F32, graph.BF16, graph.F16}

// TestMatmul compares with sums in float64, within the error that sums in this order
// may have. Memory that is not of the result stays as it was. A token's result has the
// same bits alone, and however the columns are cut.
func TestMatmul(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, isa string, kernel kernels.Kernel) {
		const seed = 13
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range 609 {
			d, k := weightTypes[i%3], i/3%66
			tokens, n := 1+rng.IntN(15), 1+rng.IntN(13)
			switch {
			case i >= 606: // of two blocks of packed tokens
				tokens, n, k = 680+rng.IntN(10), 14+rng.IntN(50), kernels.ShortDepth+rng.IntN(20)
			case i >= 600: // of several panels, blocks and parts
				tokens, n, k = 16+rng.IntN(100), 14+rng.IntN(50), kernels.ShortDepth+16*rng.IntN(108)+rng.IntN(2)
			case i >= 500:
				k = 66 + rng.IntN(1100)
			case i < 200 && i%4 == 0: // of panels for short sums: groups of rows and of tokens, and parts of them
				tokens, n, k = 6+rng.IntN(20), 1+rng.IntN(70), k+i%7*kernels.ShortDepth/16
			case i >= 200: // not in float64
				k += kernels.ShortDepth - 1
			}
			x := table(graph.F32, tokens, k, k+rng.IntN(3), rng.IntN(8))
			w := table(d, n, k, k+rng.IntN(3), rng.IntN(16))
			y := table(graph.F32, tokens, n, n+rng.IntN(6), rng.IntN(8))
			gauss := func() float32 { return float32(rng.NormFloat64()) }
			fill(&x, gauss)
			fill(&w, gauss)
			fill(&y, func() float32 { return 1e30 })
			what := fmt.Sprintf("seed %d, case %d: %d tokens, %d columns of %d in %s", seed, i, tokens, n, k, d)
			call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
			kernel.Prepare(call)
			units := kernel.Units(call)
			cut := rng.IntN(units + 1)
			kernel.Run(call, cut, units)
			kernel.Run(call, 0, cut)
			checkMatmul(t, what, &x, &w, &y, lanes[isa])
			for token := range tokens {
				one := table(graph.F32, 1, n, n, 0)
				alone := &kernels.Call{Args: []kernels.Tensor{part(x, token, token+1), w}, Results: []kernels.Tensor{one}}
				runAll(kernel, alone)
				for j, v := range one.Row(0) {
					if math.Float32bits(v) != math.Float32bits(y.Row(token)[j]) {
						t.Fatalf("%s: y[%d][%d] is %g, and %g alone", what, token, j, y.Row(token)[j], v)
					}
				}
			}
		}
	})
}

func checkMatmul(t *testing.T, what string, x, w, y *kernels.Tensor, lanes int) {
	t.Helper()
	k := x.Cols
	row := make([]float32, k)
	roundings := float64(k + 2)
	if lanes > 1 { // in a lane, of the lanes, and of the blocks
		roundings = float64(min(k, 1024)/lanes + 1 + bits.Len(uint(lanes)) + k/512)
	}
	for j := range w.Rows() {
		w.Read(row, j*w.Stride)
		for i := range x.Rows() {
			var want, size float64
			for e, v := range x.Row(i) {
				p := float64(v) * float64(row[e])
				want += p
				size += math.Abs(p)
			}
			bound := roundings * 0x1p-24 * size
			if k < kernels.ShortDepth { // in float64, rounded once
				bound = 0x1p-24*math.Abs(want) + float64(k)*0x1p-52*size
			}
			if got := float64(y.Row(i)[j]); !(math.Abs(got-want) <= bound) {
				t.Fatalf("%s: y[%d][%d] is %g, want %g", what, i, j, got, want)
			}
		}
	}
	checkBetween(t, what, y)
}

// checkBetween: what lies between the rows is as it was.
func checkBetween(t *testing.T, what string, y *kernels.Tensor) {
	t.Helper()
	for i, v := range y.F32 {
		if i%y.Stride >= y.Cols && v != 1e30 {
			t.Fatalf("%s: wrote to element %d between the rows", what, i)
		}
	}
}

// TestMatmulAccuracy: sums are at least as near to those in float64 as the plain ones.
func TestMatmulAccuracy(t *testing.T) {
	const seed, tokens, n = 17, 3, 64
	off := map[string]float64{}
	eachISA(t, "matmul", func(t *testing.T, isa string, kernel kernels.Kernel) {
		for _, k := range []int{768, 2560} {
			rng := rand.New(rand.NewPCG(seed, 0))
			x, w, y := table(graph.F32, tokens, k, k, 0), table(graph.F32, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
			fill(&x, func() float32 { return float32(rng.NormFloat64()) })
			fill(&w, func() float32 { return float32(rng.NormFloat64()) })
			runAll(kernel, &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}})
			var squares float64
			for i := range tokens {
				for j := range n {
					var want float64
					for e, v := range x.Row(i) {
						want += float64(v) * float64(w.Row(j)[e])
					}
					squares += (float64(y.Row(i)[j]) - want) * (float64(y.Row(i)[j]) - want)
				}
			}
			ulps := math.Sqrt(squares/(tokens*n)) / (0x1p-24 * math.Sqrt(float64(k)))
			t.Logf("sums of %d: %.2f half ulps of their size", k, ulps)
			what := fmt.Sprint(k)
			if isa == plain {
				off[what] = ulps
			} else if ulps > off[what] {
				t.Errorf("sums of %d are off by %.2f half ulps, and the plain ones by %.2f (seed %d)", k, ulps, off[what], seed)
			}
		}
	})
}

// TestMatmulSpecial puts one number that is special at each of the last places of sums of 1 to 65,
// and of some that are not in float64: a third of them in each sum, all with KRAIT_TEST_ALL.
func TestMatmulSpecial(t *testing.T) {
	inf := math.Inf(1)
	numbers := map[graph.DType][]float64{
		graph.F32:  {0, 0x1p-149, -0x1p-127, 0x1.fffffep127, inf, -inf, math.NaN()},
		graph.BF16: {0, 0x1p-133, -0x1p-127, 0x1.fep127, inf, -inf, math.NaN()},
		graph.F16:  {0, 0x1p-24, -0x1p-15, 65504, inf, -inf, math.NaN()},
	}
	same := func(got float32, want float64) bool {
		return float64(got) == want || math.IsNaN(want) && got != got
	}
	eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
		few := goldens.Few(t)
		for k := 1; k <= kernels.ShortDepth+65; k++ {
			if k > 65 && (k < kernels.ShortDepth || k%16 > 1) || few && k%4 > 1 {
				continue
			}
			for _, d := range weightTypes {
				x, w := table(graph.F32, 7, k, k, 0), table(d, 5, k, k, 0)
				y := table(graph.F32, 7, 5, 5, 0)
				call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				for at := max(0, k-65); at < k; at += 1 + k/kernels.ShortDepth {
					for i, v := range numbers[d] {
						if i%3 != (k+at)%3 && !goldens.All() {
							continue // at this place of other sums
						}
						fill(&x, func() float32 { return 0 })
						fill(&w, func() float32 { return 0 })
						for i := range 7 {
							x.Row(i)[at] = 1
						}
						for j := range 5 {
							w.Write(j*k+at, []float32{float32(v)})
						}
						runAll(kernel, call)
						for i := range y.F32 {
							if !same(y.F32[i], v) {
								t.Fatalf("%s: %g at %d of %d gives %g", d, v, at, k, y.F32[i])
							}
						}
						for i := range 7 { // against weights of 1
							x.Row(i)[at] = float32(v)
						}
						fill(&w, func() float32 { return 1 })
						runAll(kernel, call)
						for i := range y.F32 {
							if !same(y.F32[i], float64(float32(v))) {
								t.Fatalf("%s: x of %g at %d of %d gives %g", d, v, at, k, y.F32[i])
							}
						}
					}
				}
			}
		}
	})
}

// TestMatmulWidens: every number of 16 bits, in a vector and behind the last, is what it is.
func TestMatmulWidens(t *testing.T) {
	const numbers = 1 << 16
	eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
		for _, d := range []graph.DType{graph.BF16, graph.F16} {
			for _, c := range [][2]int{{1, 0}, {16, 8}, {kernels.ShortDepth, 256}} {
				k, at := c[0], c[1]
				x, w, y := table(graph.F32, 1, k, k, 0), table(d, numbers, k, k, 0), table(graph.F32, 1, numbers, numbers, 0)
				x.F32[at] = 1
				for i := range numbers {
					w.U16[i*k+at] = uint16(i)
				}
				runAll(kernel, &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}})
				var want [1]float32
				for i, got := range y.F32 {
					if w.Read(want[:], i*k+at); got != want[0] && (got == got || want[0] == want[0]) {
						t.Fatalf("%s %#x in sums of %d gives %g, want %g", d, i, k, got, want[0])
					}
				}
			}
		}
	})
}
