package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// fusedDraw makes tensors of random rows, between which there may be elements of others.
type fusedDraw struct {
	*rapid.T
	rng *rand.Rand
	set kernels.Set
}

func (d *fusedDraw) size(name string) int {
	return rapid.SampledFrom([]int{1, 2, 3, 5, 8, 63, 64, 65, 130}).Draw(d.T, name)
}

// tensor has numbers of all magnitudes: exponentials of them leave the range.
func (d *fusedDraw) tensor(dims ...int) kernels.Tensor {
	t := kernels.Tensor{DType: graph.F32, Cols: 1, Dims: [graph.MaxRank]int{1, 1, 1, 1}, Full: dims[len(dims)-1], Unit: 1, Axis: len(dims) - 1}
	copy(t.Dims[:], dims)
	for _, n := range dims[1:] {
		t.Cols *= n
	}
	t.Stride = t.Cols + rapid.IntRange(0, 2).Draw(d.T, "gap")
	if len(dims) != 2 {
		t.Stride = t.Cols
	}
	t.F32 = make([]float32, dims[0]*t.Stride)
	for i := range t.F32 {
		t.F32[i] = float32(d.rng.NormFloat64() * math.Exp(3*d.rng.NormFloat64()))
	}
	return t
}

// like is an empty tensor of the same shape.
func like(t kernels.Tensor) kernels.Tensor {
	t.F32 = make([]float32, len(t.F32))
	return t
}

// run computes an operation, its work cut somewhere.
func (d *fusedDraw) run(op string, attrs graph.Attrs, results []kernels.Tensor, args ...kernels.Tensor) {
	c := &kernels.Call{Args: args, Results: results, Attrs: attrs}
	k := d.set[op]
	n := k.Units(c)
	cut := rapid.IntRange(0, n).Draw(d.T, "cut")
	k.Run(c, 0, cut)
	k.Run(c, cut, n)
}

// one is the result of an operation like x.
func (d *fusedDraw) one(op string, x kernels.Tensor, more ...kernels.Tensor) kernels.Tensor {
	y := like(x)
	d.run(op, nil, []kernels.Tensor{y}, append([]kernels.Tensor{x}, more...)...)
	return y
}

// bits compares rows to the last bit; a NaN is like any other.
func (d *fusedDraw) bits(what string, got, want kernels.Tensor) {
	for i := range want.Rows() {
		a, b := got.Row(i), want.Row(i)
		for j := range b {
			if math.Float32bits(a[j]) != math.Float32bits(b[j]) && (a[j] == a[j] || b[j] == b[j]) {
				d.Fatalf("%s, row %d, column %d: %g, and apart %g", what, i, j, a[j], b[j])
			}
		}
	}
}

// TestFused: each fused operation gives the bits of those that it stands for.
func TestFused(t *testing.T) {
	for op, check := range map[string]func(d *fusedDraw, x, y kernels.Tensor){
		"add_rmsnorm": func(d *fusedDraw, x, y kernels.Tensor) {
			w, eps := d.tensor(x.Cols), graph.Attrs{"eps": 1e-5}
			sum, normed := like(x), like(y)
			d.run("add_rmsnorm", eps, []kernels.Tensor{sum, normed}, x, y, w)
			apart, want := d.one("add", x, y), like(y)
			d.run("rmsnorm", eps, []kernels.Tensor{want}, apart, w)
			d.bits("sum", sum, apart)
			d.bits("norm", normed, want)
		},
		"conv1d_silu": (*fusedDraw).conv,
		"silu_mul": func(d *fusedDraw, x, y kernels.Tensor) {
			d.bits("result", d.one("silu_mul", x, y), d.one("mul", y, d.one("silu", x)))
		},
		"bias_softplus": func(d *fusedDraw, x, _ kernels.Tensor) {
			b := d.tensor(x.Cols)
			d.bits("result", d.one("bias_softplus", x, b), d.one("softplus", d.one("bias", x, b)))
		},
		"add_scaled": func(d *fusedDraw, x, y kernels.Tensor) {
			f := d.tensor(x.Cols / d.pickDivisor(x.Cols))
			d.bits("result", d.one("add_scaled", y, x, f), d.one("add", y, d.one("scale", x, f)))
		},
	} {
		for _, isa := range ISAs() {
			t.Run(op+"/"+isa, func(t *testing.T) {
				set, err := ForISA(isa)
				if err != nil {
					t.Fatal(err)
				}
				prop.Check(t, func(t *rapid.T) {
					d := &fusedDraw{t, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), set}
					rows, cols := d.size("rows"), d.size("columns")
					check(d, d.tensor(rows, cols), d.tensor(rows, cols))
				})
			})
		}
	}
}

// TestFusedForLaunches: operations that are fused for launches multiply as the set does, with every
// math and in blocks of prompts.
func TestFusedForLaunches(t *testing.T) {
	sets := map[string]func(isa string) (kernels.Set, error){"f32": ForISA, "bf16": RoundingForISA, "int8": IntegersForISA,
		"wide": func(isa string) (kernels.Set, error) {
			return changed(isa, "", func(narrow kernels.Kernel) kernels.Kernel {
				return ByPosition(narrow, Wide{Kernel: backwards, Serves: longBF16})
			})
		}}
	for math, of := range sets {
		for _, isa := range ISAs() {
			t.Run(math+"/"+isa, func(t *testing.T) {
				set, err := of(isa)
				if err != nil {
					t.Fatal(err)
				}
				r := rand.New(rand.NewPCG(59, 0))
				gauss := func() float32 { return float32(r.NormFloat64()) }
				const tokens, n, k = 66, 5, 544
				x, y, d := filled(graph.F32, gauss, tokens, k), filled(graph.F32, gauss, tokens, n), graph.BF16
				if math == "int8" {
					d = graph.Q8
				}
				w := filled(d, gauss, n, k)
				fused, product, want := like(y), like(y), like(y)
				run := func(op string, to kernels.Tensor, args ...kernels.Tensor) {
					runAll(set[op], &kernels.Call{Args: args, Results: []kernels.Tensor{to}, Wide: []graph.Run{{Start: 1, Len: 64}}})
				}
				run("matmul_add", fused, x, w, y)
				run("matmul", product, x, w)
				run("add", want, product, y)
				if !slices.Equal(fused.F32, want.F32) {
					t.Error("matmul_add is not matmul and add")
				}
			})
		}
	}
}

// pickDivisor is a number of channels that heads may have.
func (d *fusedDraw) pickDivisor(n int) int {
	var all []int
	for k := 1; k <= n; k++ {
		if n%k == 0 {
			all = append(all, k)
		}
	}
	return rapid.SampledFrom(all).Draw(d.T, "head")
}

// conv has two sequences, of which one may have a single token.
func (d *fusedDraw) conv(x, _ kernels.Tensor) {
	width := rapid.IntRange(1, 5).Draw(d.T, "width")
	w, b, state := d.tensor(x.Cols, width), d.tensor(x.Cols), d.tensor(2, x.Cols, width-1)
	first := rapid.IntRange(0, x.Rows()).Draw(d.T, "first")
	seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{2, 3, 1, 1}, Cols: 3, Stride: 3,
		I32: []int32{0, int32(first), 1, int32(first), int32(x.Rows() - first), 0}}
	apart, before := state, state
	apart.F32, before.F32 = slices.Clone(state.F32), slices.Clone(state.F32)
	got, sum := like(x), like(x)
	d.run("conv1d_silu", nil, []kernels.Tensor{got, state}, x, w, b, state, seg)
	d.run("conv1d", nil, []kernels.Tensor{sum, apart}, x, w, apart, seg)
	d.bits("result", got, d.one("silu", d.one("bias", sum, b)))
	d.bits("state", state, apart)
	d.run("unbiased_conv1d_silu", nil, []kernels.Tensor{got, before}, x, w, before, seg)
	d.bits("result without a bias", got, d.one("silu", sum))
	d.bits("state without a bias", before, apart)
}
