package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// codedTypes are the formats of weights that have integer products.
func codedTypes() (list []graph.DType) {
	for _, d := range blockTypes() {
		if d.HasCodes() {
			list = append(list, d)
		}
	}
	return list
}

// eachIntegers runs a test with the integer products of every instruction set there is.
func eachIntegers(t *testing.T, test func(t *testing.T, isa string, set kernels.Set)) {
	for _, isa := range ISAs() {
		t.Run(isa, func(t *testing.T) {
			set, err := IntegersForISA(isa)
			if err != nil {
				t.Fatal(err)
			}
			test(t, isa, set)
		})
	}
}

// TestMatmulIntegers compares products with sums in float64 of rounded activations, within the
// roundings of the sums in f32, for what ranks have of a weight; and with sums of the activations
// themselves, within what rounding them to 8 bits may change. A token has the same bits alone and
// however columns are cut.
func TestMatmulIntegers(t *testing.T) {
	eachIntegers(t, func(t *testing.T, _ string, set kernels.Set) {
		rng := rand.New(rand.NewPCG(51, 0))
		few := goldens.Few(t)
		for i := range 500 {
			if (i%6 > 0 || i%4 > 0 && few) && i < 490 && !goldens.All() || few && i > 490 && i%5 > 0 {
				continue
			}
			k := 1 + i%70
			if i >= 400 {
				k = 1 + rng.IntN(1400)
			}
			tokens, n, ranks := 1+rng.IntN(9), 1+rng.IntN(40), 1+rng.IntN(4)
			if i >= 490 {
				tokens, n = 1+rng.IntN(200), 1+rng.IntN(150)
			}
			d := codedTypes()[i%len(codedTypes())]
			typ, data := splitAlong(rng, d, n, k), drawBlocks(rng, d, n, k)
			for rank := range ranks {
				w := heldBlocks(t, typ, data, ranks, rank, rng.IntN(32))
				x := table(graph.F32, tokens, w.Cols, w.Cols+rng.IntN(3), rng.IntN(8))
				y := table(graph.F32, tokens, n, n+rng.IntN(6), rng.IntN(8))
				fill(&x, func() float32 { return float32(rng.NormFloat64() * math.Exp(2*rng.NormFloat64())) })
				fill(&y, func() float32 { return 1e30 })
				checkIntegers(t, fmt.Sprintf("case %d: %d tokens, %d columns of %s, rank %d of %d", i, tokens, n, typ, rank, ranks), rng, set["matmul"], &x, &w, &y)
			}
		}
	})
}

func checkIntegers(t *testing.T, what string, rng *rand.Rand, kernel kernels.Kernel, x, w, y *kernels.Tensor) {
	t.Helper()
	call := &kernels.Call{Args: []kernels.Tensor{*x, *w}, Results: []kernels.Tensor{*y}}
	kernel.Prepare(call)
	units := kernel.Units(call)
	cut := rng.IntN(units + 1)
	kernel.Run(call, cut, units)
	kernel.Run(call, 0, cut)
	checkRounded(t, what, x, w, y)
	for token := range x.Rows() {
		one, again := part(*x, token, token+1), table(graph.F32, 1, y.Cols, y.Cols, 0)
		call := &kernels.Call{Args: []kernels.Tensor{one, *w}, Results: []kernels.Tensor{again}}
		kernel.Prepare(call)
		kernel.Run(call, 0, kernel.Units(call))
		for j, v := range again.Row(0) {
			if got := y.Row(token)[j]; math.Float32bits(v) != math.Float32bits(got) {
				t.Fatalf("%s: y[%d][%d] is %g, and alone %g", what, token, j, got, v)
			}
		}
	}
}

// checkRounded holds products to both sums in float64.
func checkRounded(t *testing.T, what string, x, w, y *kernels.Tensor) {
	t.Helper()
	b := w.Blocks
	elems, n := b.Format.Elems, b.Count*b.Format.Elems
	exact, numbers, steps := make([][]float32, x.Rows()), make([][]float64, x.Rows()), make([][]float64, x.Rows())
	for i := range exact {
		exact[i], numbers[i], steps[i] = make([]float32, n), make([]float64, n), make([]float64, n)
		if n == 0 {
			continue
		}
		copy(exact[i], lay(exact[i], x.Row(i), b, 0, 0))
		rounded := make([]byte, n/elems*roundedBytes(elems))
		roundPlain(rounded, exact[i], elems)
		for e := range n {
			block := rounded[e/elems*roundedBytes(elems):]
			steps[i][e] = float64(float32At(block, elems))
			numbers[i][e] = float64(int8(block[e%elems])) * steps[i][e]
		}
	}
	var codes [graph.MaxBlockLen]int8
	var scales, least [16]float32
	weights, sizes := make([]float64, n), make([]float64, n)
	for j := range w.Rows() {
		for at := range b.Count {
			part := w.DType.Codes(&codes, &scales, &least, w.U8[(j*b.Count+at)*b.Format.Bytes:][:b.Format.Bytes])
			for e := range elems {
				s, m := float64(scales[e/part]), float64(least[e/part])
				weights[at*elems+e] = s*float64(codes[e]) + m
				sizes[at*elems+e] = math.Abs(s)*(64+math.Abs(float64(codes[e]))) + math.Abs(m)
			}
		}
		for i := range x.Rows() {
			var want, size, unrounded, off float64
			for e, weight := range weights {
				want += weight * numbers[i][e]
				size += sizes[e] * math.Abs(numbers[i][e])
				unrounded += weight * float64(exact[i][e])
				off += math.Abs(weight) * (steps[i][e]*0.5000001 + 0x1p-100)
			}
			got, limit := float64(y.Row(i)[j]), float64(n/16+10)*0x1p-24*size
			if !(math.Abs(got-want) <= limit) {
				t.Fatalf("%s: y[%d][%d] is %g, want %g, at most %g off", what, i, j, got, want, limit)
			} else if !(math.Abs(got-unrounded) <= off+limit) {
				t.Fatalf("%s: y[%d][%d] is %g, with activations in f32 %g; rounding may change %g", what, i, j, got, unrounded, off)
			}
		}
	}
	for i, v := range y.F32 {
		if i%y.Stride >= y.Cols && v != 1e30 {
			t.Fatalf("%s: wrote to element %d between the rows", what, i)
		}
	}
}

// TestRoundBlocks: every instruction set rounds activations to the same bits, special ones too.
func TestRoundBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(52, 0))
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, 0x1p-101, 0x1p-100, 0x1.fffffep127, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	for i := range 3000 {
		elems := []int{32, 256}[i%2]
		x := make([]float32, elems*(1+i%5))
		scale := math.Exp(20 * rng.NormFloat64())
		for j := range x {
			if x[j] = float32(rng.NormFloat64() * scale); i%3 == 0 {
				x[j] = float32(rng.IntN(255)-127) / 2 // halves, which are ties
			}
		}
		if i%4 == 0 {
			x[rng.IntN(len(x))] = special[rng.IntN(len(special))]
		}
		want := make([]byte, roundedBytes(len(x)))
		roundPlain(want, x, elems)
		for name, round := range rounders() {
			got := make([]byte, len(want))
			if round(got, x, elems); !bytes.Equal(got, want) {
				t.Fatalf("%s: case %d: %v is rounded to\n%v, want\n%v", name, i, x, got, want)
			}
		}
	}
}

// TestIntegersSpecial: what an activation that is not finite is multiplied with is not finite,
// other tokens are as they were.
func TestIntegersSpecial(t *testing.T) {
	eachIntegers(t, func(t *testing.T, _ string, set kernels.Set) {
		rng := rand.New(rand.NewPCG(53, 0))
		for _, d := range codedTypes() {
			w := heldBlocks(t, graph.TypeOf(d, graph.Size(5), graph.Size(512)), drawBlocks(rng, d, 5, 512), 1, 0, 0)
			for _, v := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
				x, y := table(graph.F32, 3, 512, 512, 0), table(graph.F32, 3, 5, 5, 0)
				fill(&x, func() float32 { return float32(rng.NormFloat64()) })
				x.Row(1)[rng.IntN(512)] = v
				call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				kernel := set["matmul"]
				kernel.Prepare(call)
				kernel.Run(call, 0, kernel.Units(call))
				for i, got := range y.F32 {
					if finite := got-got == 0; finite == (i/5 == 1) {
						t.Fatalf("%s: with %g in token 1, token %d has %g", d, v, i/5, got)
					}
				}
			}
		}
	})
}

// TestExpertsIntegers: experts in blocks are off by what rounding their activations may change.
func TestExpertsIntegers(t *testing.T) {
	goldens.CI(t)
	eachIntegers(t, func(t *testing.T, _ string, set kernels.Set) {
		rng := rand.New(rand.NewPCG(54, 0))
		for _, d := range codedTypes() {
			const experts, hidden, width, tokens = 2, 1280, 256, 3 // hidden units in two blocks
			weight := func(rows, cols int) kernels.Tensor {
				w := kernels.Describe(graph.TypeOf(d, graph.Size(experts), graph.Size(rows), graph.Size(cols)), 1, 0)
				w.U8 = drawBlocks(rng, d, experts*rows, cols)
				return w
			}
			x, p, y := table(graph.F32, tokens, width, width, 0), table(graph.F32, tokens, experts, experts, 0), table(graph.F32, tokens, width, width, 0)
			fill(&x, func() float32 { return float32(rng.NormFloat64()) })
			fill(&p, func() float32 { return float32(rng.IntN(2)) })
			p.Row(1)[1] = 1
			call := &kernels.Call{
				Args:    []kernels.Tensor{x, p, weight(hidden, width), weight(hidden, width), weight(width, hidden)},
				Results: []kernels.Tensor{y}, Attrs: graph.Attrs{"act": "silu"},
			}
			run := func(kernel kernels.Kernel) []float32 {
				kernel.Prepare(call)
				kernel.Run(call, 0, kernel.Units(call))
				return append([]float32(nil), y.F32...)
			}
			want, got := run(Kernels["experts"]), run(set["experts"])
			var size, off float64
			for i, v := range want {
				size += float64(v) * float64(v)
				off += float64(got[i]-v) * float64(got[i]-v)
			}
			if loss := math.Sqrt(off / size); loss > 0.02 || loss < 0.001 {
				t.Errorf("%s: off by %.4f of their size", d, loss)
			}
		}
	})
}

// TestIntegersAllocates: nothing.
func TestIntegersAllocates(t *testing.T) {
	rng := rand.New(rand.NewPCG(55, 0))
	eachIntegers(t, func(t *testing.T, _ string, set kernels.Set) {
		kernel := set["matmul"]
		for _, d := range codedTypes() {
			typ := graph.TypeOf(d, graph.Size(19), graph.Size(600))
			typ.Layout = graph.SplitOn(1, 1)
			w := heldBlocks(t, typ, drawBlocks(rng, d, 19, 600), 2, 1, 0)
			x, y := table(graph.F32, 10, 300, 300, 0), table(graph.F32, 10, 19, 19, 0)
			call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
			kernel.Prepare(call)
			if n := testing.AllocsPerRun(5, func() {
				kernel.Before.Run(call, 0, 10)
				kernel.Run(call, 0, kernel.Units(call))
			}); n != 0 {
				t.Errorf("%s: %g allocations", d, n)
			}
		}
	})
}

// BenchmarkMatmulIntegers is BenchmarkMatmulBlocks with integer products.
func BenchmarkMatmulIntegers(b *testing.B) {
	const n, k = 3072, 768
	for _, isa := range ISAs() {
		set, err := IntegersForISA(isa)
		if err != nil {
			b.Fatal(err)
		}
		counts := []int{1, 2, 6, 16, 64, 512}
		for i := range len(counts) * len(codedTypes()) {
			d, tokens := codedTypes()[i/len(counts)], counts[i%len(counts)]
			b.Run(fmt.Sprintf("%s/%s/%d", isa, d, tokens), func(b *testing.B) {
				w := kernels.Describe(graph.TypeOf(d, graph.Size(n), graph.Size(k)), 1, 0)
				w.U8 = drawBlocks(rand.New(rand.NewPCG(1, 2)), d, n, k)
				x, y := table(graph.F32, tokens, k, k, 0), table(graph.F32, tokens, n, n, 0)
				fill(&x, func() float32 { return 1 })
				call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				kernel := set["matmul"]
				kernel.Prepare(call)
				b.SetBytes(int64(len(w.U8)))
				for b.Loop() {
					kernel.Before.Run(call, 0, tokens)
					kernel.Run(call, 0, kernel.Units(call))
				}
				b.ReportMetric(2*n*k*float64(tokens)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
