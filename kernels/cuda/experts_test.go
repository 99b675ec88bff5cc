package cuda

import (
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// normRouterCase: scores are apart by more than what sums in another order change.
func normRouterCase(d *draw) func() kernels.Call {
	e, k := d.size("e", 33, 64, 129), d.size("k", 24, 40, 264)
	attrs := graph.Attrs{"eps": 0.5, "top": d.attr("router", "top", e), "norm": d.attr("router", "norm", e)}
	g, w := d.packed(graph.F32, k), d.packed(d.format(), e, k)
	return func() kernels.Call {
		t := d.size("t")
		return call(attrs, []kernels.Tensor{d.tensor(graph.F32, t, k), d.tensor(graph.F32, t, e)}, d.tensor(graph.F32, t, k), g, w)
	}
}

// addExpertsCase adds what experts put out to something.
func addExpertsCase(d *draw) func() kernels.Call { return addedCase(d, expertsCase(d)) }

func addUngatedCase(d *draw) func() kernels.Call { return addedCase(d, ungatedCase(d)) }

func addedCase(d *draw, next func() kernels.Call) func() kernels.Call {
	return func() kernels.Call {
		c := next()
		c.Args = append(c.Args, d.tensor(graph.F32, c.Results[0].Rows(), c.Results[0].Cols))
		return c
	}
}

// TestNormRouter: of few experts several warps share a score, whatever is left over for the last.
func TestNormRouter(t *testing.T) {
	op := findOp(t, "norm_router")
	check(t, "norm_router", func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		e, k, rows := d.pick("e", 2, 3, 4, 15, 16, 17, 31, 32, 33, 65), d.pick("k", 255, 257, 511, 520, 1032, 1160), d.pick("t", 1, 2, 8)
		d.aligned = d.pick("aligned", 0, 1) == 1
		w := d.packed(d.format(), e, k)
		d.fill(&w, func(v float64) float64 { return v / 32 })
		attrs := graph.Attrs{"eps": 0.5, "top": e, "norm": 0} // all stay: nothing hides a score
		c := call(attrs, []kernels.Tensor{d.tensor(graph.F32, rows, k), d.tensor(graph.F32, rows, e)}, d.tensor(graph.F32, rows, k), d.packed(graph.F32, k), w)
		on := dev.deviceCall(op, &c, nil, d.offset)
		dev.compute(op, on, d.rng.Uint64())
		plain := reference.Kernels["norm_router"]
		got := []kernels.Tensor{clone(&c.Results[0]), clone(&c.Results[1])}
		plain.Run(&c, 0, 1)
		for i := range got {
			dev.download(on.Results[i], &got[i])
			same(t, "result", &got[i], &c.Results[i], 1e-5)
		}
	})
}

// routed leaves weights as they come, or to all tokens that of the first expert and to one that of
// the second, or to all that of the last.
func (d *draw) routed(weights *kernels.Tensor) {
	how := d.pick("shared", 0, 1, 2)
	for t := range weights.Rows() {
		for e, row := 0, weights.Row(t); e < len(row); e++ {
			some := how == 0 && d.rng.IntN(3) == 0 || how == 1 && (e == 0 || e == 1 && t == weights.Rows()/2)
			if how == 2 && e == len(row)-1 {
				some = true // all of them use the last, and no other one
			}
			if !some {
				row[e] = 0
			}
		}
	}
}

// sharedCase is a call of experts of some tokens and sizes, of which some experts have no rows, one
// or all.
func (d *draw) sharedCase(op string, e, i, k, n, rows int, format graph.DType) kernels.Call {
	c := expertsOf(d, e, i, k, n, format)()
	c.Args[0], c.Args[1], c.Results[0] = d.tensor(graph.F32, rows, k), d.tensor(graph.F32, rows, e), d.tensor(graph.F32, rows, n)
	d.routed(&c.Args[1])
	if strings.Contains(op, "ungated") {
		c.Args = slices.Delete(c.Args, 3, 4)
	}
	if strings.HasPrefix(op, "add") {
		c.Args = append(c.Args, d.tensor(graph.F32, rows, n))
	}
	return c
}

// expertOps are the operations that kernels of experts compute.
var expertOps = []string{"experts", "ungated_experts", "add_experts", "add_ungated_experts"}

// checkShared holds a call against float64.
func checkShared(t *rapid.T, d *draw, op string, c *kernels.Call, share float64) {
	dev := newDevice(t)
	on := dev.deviceCall(findOp(t, op), c, nil, d.offset)
	dev.compute(findOp(t, op), on, d.rng.Uint64())
	got := clone(&c.Results[0])
	dev.download(on.Results[0], &got)
	plain := reference.Kernels[op]
	plain.Run(c, 0, 1)
	same(t, "result", &got, &c.Results[0], share)
}

// TestExpertsSplit: experts of many tokens by weights in 16 bits are those of f32 math, whatever
// the tiles leave over.
func TestExpertsSplit(t *testing.T) {
	for _, format := range []graph.DType{graph.BF16, graph.F16} {
		test := func(t *rapid.T) {
			d := newDraw(t)
			d.aligned = true
			op := rapid.SampledFrom(expertOps).Draw(t, "op")
			i, k, n := d.pick("i", 8, 56, 64, 72, 136, 264), d.pick("k", 8, 16, 24, 40), d.size("n", 63, 127, 129, 255, 257)
			c := d.sharedCase(op, d.pick("e", 1, 2, 3), i, k, n, d.pick("t", 33, 63, 64, 65, 97, 129), format)
			checkShared(t, d, op, &c, 2e-6)
		}
		check(t, "tiles", test)
		name := format.String()
		until(t, test, "experts_split_"+name+".expert_mma_split_"+name)
	}
}

// TestExpertsFew: experts of so few tokens that the kernels find who uses which, with more experts
// than lanes, and with tokens that use more of them than the router's top.
func TestExpertsFew(t *testing.T) {
	check(t, "split", func(t *rapid.T) {
		d := newDraw(t)
		op := rapid.SampledFrom(expertOps).Draw(t, "op")
		c := d.sharedCase(op, d.pick("e", 1, 31, 32, 33, 67), d.size("i", 11), d.size("k", 24), d.size("n", 11), d.pick("t", 1, 1, 2, 7, 8, 9, 16, 31, 32), d.format())
		checkShared(t, d, op, &c, 1e-5)
	})
}

// TestExpertLaunches: how many launches experts are, by their tokens, and of what.
func TestExpertLaunches(t *testing.T) {
	d := &draw{rng: newRand(1)}
	names := func(op string, rows, k int, format graph.DType, o Options) string {
		x, p, w, down := shaped(graph.F32, rows, k), shaped(graph.F32, rows, 4), d.packed(format, 4, 16, k), d.packed(format, 4, 8, 16)
		c := &Call{Attrs: graph.Attrs{"act": "silu", "top": 2, "eps": 0.5}, Options: o, Results: []Tensor{{Tensor: shaped(graph.F32, rows, 8)}}}
		c.Args = []Tensor{{Tensor: x}, {Tensor: p}, {Tensor: w}, {Tensor: w}, {Tensor: down}}
		if op == "norm_router" {
			score := shaped(format, 4, k)
			c.Args = []Tensor{{Tensor: x}, {Tensor: shaped(graph.F32, k)}, {Tensor: score}}
			c.Results = []Tensor{{Tensor: x}, {Tensor: p}}
		}
		launches, err := Kernels[op].Launches(c)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range launches {
			names = append(names, l.Function)
		}
		return strings.Join(names, " ")
	}
	bf16 := Options{Math: BF16}
	for _, c := range []struct {
		op      string
		rows, k int
		format  graph.DType
		o       Options
		want    string
	}{
		{"experts", 1, 16, graph.BF16, Options{}, "expert_hidden_bf16_1 expert_output_bf16_1"},
		{"experts", 4, 16, graph.BF16, Options{}, "expert_hidden_bf16_4 expert_output_bf16_4"},
		{"experts", 5, 16, graph.BF16, Options{}, "expert_hidden_bf16_8 expert_output_bf16_8"},
		{"experts", 8, 16, graph.F16, Options{}, "expert_hidden_f16_8 expert_output_f16_8"},
		{"experts", 9, 16, graph.F16, Options{}, "experts_lists expert_mma_split_f16 expert_mma_split_f16 experts_sum"},
		{"experts", 32, 16, graph.F32, Options{}, "expert_hidden_f32_8 expert_output_f32_8"},
		{"experts", 8, 16, graph.F32, bf16, "expert_hidden_f32_8 expert_output_f32_8"},
		{"experts", 9, 12, graph.BF16, bf16, "expert_hidden_bf16_8 expert_output_bf16_8"},
		{"experts", 9, 16, graph.BF16, bf16, "experts_lists convert_f32_bf16 expert_mma_few_bf16 expert_mma_few_bf16 experts_sum_bf16"},
		{"experts", 130, 16, graph.F32, bf16, "experts_lists convert_f32_bf16 expert_mma_tile_f32 expert_mma_tile_f32 experts_sum_bf16"},
		{"experts", 33, 16, graph.BF16, Options{}, "experts_lists expert_mma_split_bf16 expert_mma_split_bf16 experts_sum"},
		{"experts", 33, 12, graph.BF16, Options{}, "experts_lists expert_matmul_bf16 expert_mma_split_bf16 experts_sum"},
		{"experts", 33, 16, graph.F32, Options{}, "experts_lists expert_matmul_f32 expert_matmul_f32 experts_sum"},
		{"norm_router", 8, 4096, graph.F32, Options{}, "norm_router"},
		{"norm_router", 9, 4096, graph.F32, Options{}, "rmsnorm gemv_f32_8_4 router"},
		{"norm_router", 1, 8200, graph.F32, Options{}, "rmsnorm gemv_f32_1_1 router"},
	} {
		if got := names(c.op, c.rows, c.k, c.format, c.o); got != c.want {
			t.Errorf("%s of %d tokens of %d by %s: %s, want %s", c.op, c.rows, c.k, c.format, got, c.want)
		}
	}
}

// mixtureCase is experts of many tokens in bf16, aligned as that wants, of any function.
func mixtureCase(op string) func(d *draw) func() kernels.Call {
	return func(d *draw) func() kernels.Call {
		d.aligned = true
		e, i, k, n, rows, format := d.pick("e", 1, 2, 5), d.pick("i", 8, 40, 72), d.pick("k", 8, 24), d.size("n", 65, 129), d.pick("t", 9, 31, 33, 70, 129, 257), d.format()
		attrs := graph.Attrs{"act": d.attr("experts", "act", e), "top": d.attr("experts", "top", e)}
		return func() kernels.Call {
			c := d.sharedCase(op, e, i, k, n, rows, format)
			c.Attrs = attrs
			return c
		}
	}
}
