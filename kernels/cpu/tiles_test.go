package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestMatmulTiles is TestMatmul around the edges of tiles, and of what a part of the work is.
func TestMatmulTiles(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, isa string, kernel kernels.Kernel) {
		checkTiles(t, kernel, graph.BF16, lanes[isa], kernels.ShortDepth, nil)
	})
}

// checkTiles checks products of sums that have some more terms than depth. Activations
// are rounded first where the kernel does it.
func checkTiles(t *testing.T, kernel kernels.Kernel, weights graph.DType, lanes, depth int, round func([]float32)) {
	t.Helper()
	const seed = 17
	rng := rand.New(rand.NewPCG(seed, 0))
	gauss := func() float32 { return float32(rng.NormFloat64()) }
	for i, tokens := range []int{1, 2, 15, 16, 17, 31, 32, 33, 49, 65, 97} {
		for j, n := range []int{1, 15, 16, 17, 31, 32, 33, 64, 97} {
			k := depth + []int{1, 31, 32, 33, 63, 64, 65, 96, 257, 1121}[(i+j)%10]
			x, w := table(graph.F32, tokens, k, k+rng.IntN(3), rng.IntN(8)), table(weights, n, k, k+rng.IntN(3), rng.IntN(16))
			y := table(graph.F32, tokens, n, n+rng.IntN(6), rng.IntN(8))
			fill(&x, gauss)
			fill(&w, gauss)
			fill(&y, func() float32 { return 1e30 })
			call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
			kernel.Prepare(call)
			for u := kernel.Units(call); u > 0; { // from the last to the first
				lo := rng.IntN(u)
				kernel.Run(call, lo, u)
				u = lo
			}
			what := fmt.Sprintf("seed %d: %d tokens, %d columns of %d", seed, tokens, n, k)
			if round != nil {
				round(x.F32)
			}
			checkWide(t, what, &x, &w, &y, lanes)
			checkBetween(t, what, &y)
			token := rng.IntN(tokens)
			one := table(graph.F32, 1, n, n, 0)
			runAll(kernel, &kernels.Call{Args: []kernels.Tensor{part(x, token, token+1), w}, Results: []kernels.Tensor{one}})
			for j, v := range one.Row(0) {
				if math.Float32bits(v) != math.Float32bits(y.Row(token)[j]) {
					t.Fatalf("%s: y[%d][%d] is %g, and %g alone", what, token, j, y.Row(token)[j], v)
				}
			}
		}
	}
}

// TestMatmulWide: products of numbers of all sizes, of which some are special, are as
// near to float64 as sums in f32 are, down to the smallest numbers.
func TestMatmulWide(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, isa string, kernel kernels.Kernel) {
		checkSizes(t, kernel, graph.BF16, lanes[isa], kernels.ShortDepth, 100)
	})
}

func checkSizes(t *testing.T, kernel kernels.Kernel, weights graph.DType, lanes, depth, cases int) {
	t.Helper()
	inf := float32(math.Inf(1))
	special := []float32{0, 0, inf, -inf, float32(math.NaN()), 0x1p-133, -0x1p-127, 0x1.fep127}
	const seed = 19
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range cases {
		tokens, n, k := 1+rng.IntN(20), 1+rng.IntN(40), depth+1+rng.IntN(70)
		x, w, y := table(graph.F32, tokens, k, k, 0), table(weights, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
		// Exponents are around a middle, some wide of it; the product of all stays in range.
		draw := func(middle, spread, odd int) func() float32 {
			return func() float32 {
				if odd > 0 && rng.IntN(odd) == 0 {
					return special[rng.IntN(len(special))]
				}
				e := middle - spread + rng.IntN(2*spread+1)
				return float32(math.Ldexp(rng.NormFloat64(), max(-149, min(e, 120))))
			}
		}
		middle := rng.IntN(240) - 130
		fill(&x, draw(middle, rng.IntN(1+i%100), i%3*10*k))
		fill(&w, draw(min(rng.IntN(240)-130, 60-middle), rng.IntN(1+i%70), i%2*15*k))
		if i%5 == 0 {
			clear(x.Row(0))
		}
		runAll(kernel, &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}})
		checkWide(t, fmt.Sprintf("seed %d, case %d: %d tokens, %d columns of %d", seed, i, tokens, n, k), &x, &w, &y, lanes)
	}
}

// checkWide compares with sums in float64, where no sum in f32 may have been infinite.
func checkWide(t *testing.T, what string, x, w, y *kernels.Tensor, lanes int) {
	t.Helper()
	k := x.Cols
	row := make([]float32, k)
	roundings := float64(k/lanes + k%lanes + 6)
	for j := range w.Rows() {
		w.Read(row, j*w.Stride)
		for i := range x.Rows() {
			var want, size float64 // size is of the finite products
			for e, v := range x.Row(i) {
				p := float64(v) * float64(row[e])
				want += p
				if math.Abs(p) <= math.MaxFloat64 {
					size += math.Abs(p)
				}
			}
			got := float64(y.Row(i)[j])
			off := math.Abs(got-want) > roundings*(0x1p-24*size+0x1p-149)
			if size < math.MaxFloat32 && got != want && (off || math.IsNaN(got) != math.IsNaN(want)) {
				t.Fatalf("%s: y[%d][%d] is %g, want %g", what, i, j, got, want)
			}
		}
	}
}

// TestMatmulError: no instruction set's sums are further from float64 than half of what the plain
// ones are, as a mean, also where the tokens are whole blocks.
func TestMatmulError(t *testing.T) {
	const seed, k, n, tokens = 23, 1100, 40, 20
	rng := rand.New(rand.NewPCG(seed, 0))
	gauss := func() float32 { return float32(rng.NormFloat64()) }
	for _, format := range []graph.DType{graph.BF16, graph.F32} {
		x, w, y := table(graph.F32, tokens, k, k, 0), table(format, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
		fill(&x, gauss)
		fill(&w, gauss)
		plainly := 0.0
		eachISA(t, "matmul", func(t *testing.T, isa string, kernel kernels.Kernel) {
			runAll(kernel, &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}, Wide: []graph.Run{{Len: tokens}}})
			off := meanError(&x, &w, &y)
			t.Logf("%s: %.3f of 2^-24 times the sum of absolute products", format, off)
			if isa == plain {
				plainly = off
			} else if off > plainly/2 {
				t.Errorf("seed %d: %s is off by %.3f, and plain by %.3f", seed, isa, off, plainly)
			}
		})
	}
}

// meanError is the root mean square of the errors against float64, in 2^-24 times the sum of
// absolute products.
func meanError(x, w, y *kernels.Tensor) float64 {
	row, sum := make([]float32, w.Cols), 0.0
	for j := range w.Rows() {
		w.Read(row, j*w.Stride)
		for i := range x.Rows() {
			var want, size float64
			for e, v := range x.Row(i) {
				p := float64(v) * float64(row[e])
				want += p
				size += math.Abs(p)
			}
			sum += math.Pow((float64(y.Row(i)[j])-want)/size*0x1p24, 2)
		}
	}
	return math.Sqrt(sum / float64(w.Rows()*x.Rows()))
}

// TestMatmulRounds: with rounded activations a product by weights in bf16 is that of activations
// rounded before, to the bit, and others are as they were. It leaves its operands alone.
func TestMatmulRounds(t *testing.T) {
	const seed, n = 29, 21
	rng := rand.New(rand.NewPCG(seed, 0))
	gauss := func() float32 { return float32(rng.NormFloat64()) }
	eachISA(t, "matmul", func(t *testing.T, isa string, exact kernels.Kernel) {
		set, err := RoundingForISA(isa)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 18 {
			d, tokens, k := weightTypes[i%3], []int{1, 18, 66}[i/3%3], []int{600, kernels.ShortDepth - 1}[i/9]
			x, w := table(graph.F32, tokens, k, k+3, 1), table(d, n, k, k, 0)
			y, want := table(graph.F32, tokens, n, n, 0), table(graph.F32, tokens, n, n, 0)
			fill(&x, gauss)
			fill(&w, gauss)
			call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
			before := slices.Clone(x.F32)
			if runAll(set["matmul"], call); !slices.Equal(x.F32, before) {
				t.Fatalf("seed %d: %d tokens in %s: the activations have changed", seed, tokens, d)
			}
			if n := allocations(set["matmul"], call); n != 0 {
				t.Errorf("%d tokens in %s: %v allocations", tokens, d, n)
			}
			if d == graph.BF16 && k >= kernels.ShortDepth {
				kernels.Round(graph.BF16, x.F32)
			}
			runAll(exact, &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{want}})
			if !slices.Equal(y.F32, want.F32) {
				t.Errorf("seed %d: %d tokens, sums of %d in %s are not those of rounded activations", seed, tokens, k, d)
			}
		}
	})
}

// TestMatmulAllocates: a product allocates nothing once it has its scratch memory.
func TestMatmulAllocates(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
		for _, tokens := range []int{18, 66} {
			x, w, y := table(graph.F32, tokens, 600, 600, 0), table(graph.BF16, 40, 600, 600, 0), table(graph.F32, tokens, 40, 40, 0)
			call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
			if n := allocations(kernel, call); n != 0 {
				t.Errorf("%d tokens: %v allocations", tokens, n)
			}
		}
	})
}
