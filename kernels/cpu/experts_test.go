package cpu

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
)

// expertsCall draws experts of some hidden units, two of them for each token but for
// every fifth, which has none.
func expertsCall(rng *rand.Rand, d graph.DType, tokens, width, hidden, outs int) *kernels.Call {
	const experts = 3
	gauss := func() float32 { return float32(rng.NormFloat64()) }
	small := func() float32 { return float32(rng.NormFloat64() / math.Sqrt(float64(width))) }
	x, p := table(graph.F32, tokens, width, width+1, 1), table(graph.F32, tokens, experts, experts, 0)
	fill(&x, gauss)
	for t := range tokens {
		for _, i := range rng.Perm(experts)[:2] {
			if t%5 > 0 {
				p.Row(t)[i] = rng.Float32()
			}
		}
	}
	weights := func(rows, cols int, value func() float32) kernels.Tensor {
		w := filled(d, value, experts, 2*rows, cols) // something lies between the experts
		w.Dims[1], w.Cols = rows, rows*cols
		return w
	}
	return &kernels.Call{
		Args:    []kernels.Tensor{x, p, weights(hidden, width, small), weights(hidden, width, small), weights(outs, hidden, gauss)},
		Results: []kernels.Tensor{table(graph.F32, tokens, outs, outs+2, 3)},
		Attrs:   graph.Attrs{"act": "silu", "top": 2},
	}
}

// TestExperts compares with sums in float64; a token's result has the same bits alone, and
// however the tokens are cut.
func TestExperts(t *testing.T) {
	testExperts(t, "experts", func(c *kernels.Call) {})
}

// TestUngatedExperts is of the same without up.
func TestUngatedExperts(t *testing.T) {
	goldens.CI(t)
	testExperts(t, "ungated_experts", func(c *kernels.Call) {
		c.Args = slices.Delete(c.Args, 3, 4)
		c.Attrs = graph.Attrs{"act": "relu2", "top": 2}
	})
}

func testExperts(t *testing.T, op string, edit func(c *kernels.Call)) {
	eachISA(t, op, func(t *testing.T, isa string, kernel kernels.Kernel) {
		const seed = 23
		rng := rand.New(rand.NewPCG(seed, 0))
		few := goldens.Few(t)
		for i, size := range [][4]int{{1, 1, 1, 1}, {2, 5, 3, 7}, {7, 32, 48, 32}, {9, 17, 1030, 19}, {141, 16, 33, 18}, {3, 16, 0, 5}} {
			formats := append(weightTypes, graph.Q8)
			if i != 3 { // blocks of 256 for rows of 17 are slow to draw and to read
				formats = append(formats, graph.Q4_K)
			}
			for _, d := range formats {
				c := expertsCall(rng, d, size[0], size[1], size[2], size[3])
				edit(c)
				y := &c.Results[0]
				fill(y, func() float32 { return 1e30 })
				kernel.Prepare(c)
				b := kernel.Before // in two parts, the second first
				cut := rng.IntN(b.Units(c) + 1)
				b.Run(c, cut, b.Units(c))
				b.Run(c, 0, cut)
				units := kernel.Units(c)
				cut = rng.IntN(units + 1)
				kernel.Run(c, cut, units)
				kernel.Run(c, 0, cut)
				want := *c
				want.Results = []kernels.Tensor{table(graph.F32, size[0], size[3], size[3], 0)}
				reference.Kernels[op].Run(&want, 0, 1)
				near(t, op, y, &want.Results[0], 2e-6)
				for token := range size[0] {
					if few && token%7 > 0 && token < size[0]-2 {
						continue
					}
					one := *c
					one.Args = append([]kernels.Tensor{part(c.Args[0], token, token+1), part(c.Args[1], token, token+1)}, c.Args[2:]...)
					one.Results = []kernels.Tensor{table(graph.F32, 1, size[3], size[3], 0)}
					runAll(kernel, &one)
					sameBits(t, i, token, y.Row(token), one.Results[0].Row(0))
				}
			}
		}
	})
}

// TestExpertsByPosition: tokens in whole blocks of prompts go through experts by wide products,
// others by narrow ones, each with the bits that it has alone, whatever else its experts get.
func TestExpertsByPosition(t *testing.T) {
	eachISA(t, "experts", func(t *testing.T, isa string, _ kernels.Kernel) {
		set, err := narrowForISA(isa)
		if err != nil {
			t.Fatal(err)
		}
		checkExpertsWide(t, set, Wide{Kernel: backwards, Serves: longBF16}, []int{24, kernels.ShortDepth, kernels.ShortDepth + 3, 5}, 2e-6)
		if isa != plain { // an expert has more tokens than go through it together
			checkExpertsWide(t, set, Wide{Kernel: backwards, Serves: func(*kernels.Call) bool { return true }}, []int{gathered * 2, 9, 8, 3}, 2e-6)
		}
	})
}

// checkExpertsWide is of sizes that are tokens, terms, hidden units and outputs: results are within
// a share of those in float64.
func checkExpertsWide(t *testing.T, set kernels.Set, w Wide, sizes []int, share float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(61, 0))
	narrow, both := maps.Clone(set), maps.Clone(set)
	both["matmul"] = ByPosition(set["matmul"], w)
	maps.Copy(narrow, Experts(narrow))
	maps.Copy(both, Experts(both))
	c := expertsCall(rng, graph.BF16, sizes[0], sizes[1], sizes[2], sizes[3])
	fill(&c.Results[0], func() float32 { return 1e30 })
	c.Wide = drawWide(rng, sizes[0])
	runAll(both["experts"], c)
	want := *c
	want.Results = []kernels.Tensor{table(graph.F32, sizes[0], sizes[3], sizes[3], 0)}
	reference.Kernels["experts"].Run(&want, 0, 1)
	near(t, "experts", &c.Results[0], &want.Results[0], share)
	other := false
	for token := range sizes[0] {
		one, y := *c, [2]kernels.Tensor{}
		one.Args = append([]kernels.Tensor{part(c.Args[0], token, token+1), part(c.Args[1], token, token+1)}, c.Args[2:]...)
		for i, wide := range [][]graph.Run{nil, {{Start: 0, Len: 1}}} {
			y[i] = table(graph.F32, 1, sizes[3], sizes[3], 0)
			one.Results, one.Wide = y[i:i+1], wide
			runAll([]kernels.Set{narrow, both}[i]["experts"], &one)
		}
		in := slices.ContainsFunc(c.Wide, func(b graph.Run) bool { return b.Start <= token && token < b.End() })
		sameBits(t, 0, token, c.Results[0].Row(token), y[map[bool]int{true: 1}[in]].Row(0))
		other = other || !slices.Equal(y[0].Row(0), y[1].Row(0))
	}
	if !other {
		t.Error("wide products have the bits of narrow ones")
	}
}

// TestExpertsOfNoNumbers: a router leaves all experts where scores are no numbers, and then results
// are none, also with memory for the top only.
func TestExpertsOfNoNumbers(t *testing.T) {
	eachISA(t, "experts", func(t *testing.T, _ string, kernel kernels.Kernel) {
		c := expertsCall(rand.New(rand.NewPCG(71, 0)), graph.F32, 6, 1, anyExperts/16, 1)
		for token := range 6 {
			if row := c.Args[1].Row(token); token != 3 {
				for i := range row {
					row[i] = float32(math.NaN())
				}
			}
		}
		runAll(kernel, c)
		for token := range 6 {
			if v := c.Results[0].Row(token)[0]; (v == v) != (token == 3) {
				t.Errorf("token %d has %g", token, v)
			}
		}
	})
}

// TestHeads is of heads that a rank has all or parts of.
func TestHeads(t *testing.T) {
	const seed = 29
	for _, op := range []string{"head_down", "head_up"} {
		eachISA(t, op, func(t *testing.T, isa string, kernel kernels.Kernel) {
			rng := rand.New(rand.NewPCG(seed, 0))
			gauss := func() float32 { return float32(rng.NormFloat64()) }
			for i := range 60 {
				tokens, heads, size, each := 1+rng.IntN(12), 1+rng.IntN(5), 1+rng.IntN(70), 1+rng.IntN(9)
				if i%9 == 0 {
					tokens = 100
				}
				x := table(graph.F32, tokens, heads*size, heads*size+rng.IntN(3), 1)
				w := filled(append(weightTypes, blockTypes()...)[i%13], gauss, heads*each, size)
				y := table(graph.F32, tokens, heads*each, heads*each+rng.IntN(3), 2)
				x.Full, y.Full = x.Cols, y.Cols
				if op == "head_down" && i%2 == 0 { // a part of the channels, which may begin in a head
					from := rng.IntN(x.Cols)
					x.Axis, x.Runs = 1, []graph.Run{{Start: from, Len: 1 + rng.IntN(x.Cols-from)}}
					x.Cols = x.Runs[0].Len
				}
				fill(&x, gauss)
				fill(&y, func() float32 { return 1e30 })
				c := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				units := kernel.Units(c)
				cut := rng.IntN(units + 1)
				kernel.Run(c, cut, units)
				kernel.Run(c, 0, cut)
				want := *c
				want.Results = []kernels.Tensor{y}
				want.Results[0].F32 = make([]float32, len(y.F32))
				reference.Kernels[op].Run(&want, 0, 1)
				near(t, op, &y, &want.Results[0], 2e-6)
				for token := range tokens {
					one := *c
					one.Args = []kernels.Tensor{part(x, token, token+1), w}
					one.Results = []kernels.Tensor{table(graph.F32, 1, y.Cols, y.Cols, 0)}
					one.Results[0].Full = y.Full
					runAll(kernel, &one)
					sameBits(t, i, token, y.Row(token), one.Results[0].Row(0))
				}
			}
		})
	}
}

// near holds a result to a share of the largest magnitude, and what lies between its rows
// to what it was.
func near(t *testing.T, what string, got, want *kernels.Tensor, share float64) {
	t.Helper()
	scale := 1.0
	for i := range want.Rows() {
		for _, v := range want.Row(i) {
			scale = max(scale, math.Abs(float64(v)))
		}
	}
	for i := range want.Rows() {
		for j, v := range want.Row(i) {
			if off := math.Abs(float64(got.Row(i)[j]) - float64(v)); !(off <= share*scale) {
				t.Fatalf("%s: y[%d][%d] is %g, want %g", what, i, j, got.Row(i)[j], v)
			}
		}
	}
	for i, v := range got.F32 {
		if i%got.Stride >= got.Cols && v != 1e30 {
			t.Fatalf("%s: wrote to element %d between the rows", what, i)
		}
	}
}

func sameBits(t *testing.T, i, token int, got, alone []float32) {
	t.Helper()
	for j, v := range alone {
		if math.Float32bits(v) != math.Float32bits(got[j]) {
			t.Fatalf("case %d: y[%d][%d] is %g, and %g alone", i, token, j, got[j], v)
		}
	}
}

// TestProductsAllocate: nothing is allocated once there are buffers.
func TestProductsAllocate(t *testing.T) {
	for _, op := range []string{"matmul", "experts"} {
		eachISA(t, op, func(t *testing.T, isa string, kernel kernels.Kernel) {
			for _, d := range weightTypes {
				for _, tokens := range []int{1, 30} {
					c := expertsCall(rand.New(rand.NewPCG(1, 0)), d, tokens, 16, 40, 16)
					if op == "matmul" {
						w := table(d, 41, 16, 16, 0)
						c = &kernels.Call{Args: []kernels.Tensor{c.Args[0], w}, Results: []kernels.Tensor{table(graph.F32, tokens, 41, 41, 0)}}
					}
					if n := allocations(kernel, c); n > 0 {
						t.Errorf("%s with %d tokens allocates %g times", d, tokens, n)
					}
				}
			}
		})
	}
}
