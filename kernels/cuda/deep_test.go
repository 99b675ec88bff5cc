package cuda

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// TestDeepSums: products of 5,120 terms keep their precision on tensor cores, which truncate what
// they add: those that are taken apart are at least as good as sums by fma in f32, which are off by
// 2.1e-6 of the largest. Products of bf16 stay in the accumulators of tensor cores, as cuBLAS's do.
func TestDeepSums(t *testing.T) {
	goldens.CI(t)
	few := goldens.Few(t)
	for _, c := range []struct {
		function string
		positive bool
		math     Math
		most     float64 // error, as a share of the largest result
	}{
		{"mma_split_bf16_32_32", false, F32, 1e-6},
		{"mma_split_bf16_32_32", true, F32, 1e-6},
		{"mma_round_bf16_32_32", true, BF16, 1e-4},
	} {
		if few && !c.positive {
			continue
		}
		const n, k, rows = 8, 5120, 33
		rng := rand.New(rand.NewPCG(1, 2))
		draw := func(v *kernels.Tensor) {
			for i := range v.Dims[0] * v.Dims[1] {
				f := float32(rng.NormFloat64())
				if c.positive {
					f = float32(math.Abs(float64(f)))
				}
				put(v, i, f)
			}
		}
		x, w, y := shaped(graph.F32, rows, k), shaped(graph.BF16, n, k), shaped(graph.F32, rows, n)
		draw(&x)
		draw(&w)
		if c.math == BF16 {
			x = round(x)
		}
		y.F32 = make([]float32, rows*n)
		dev, op, host := newDevice(t), findOp(t, "matmul"), call(nil, one(y), x, w)
		on := dev.deviceCall(op, &host, nil, func() int { return 0 })
		on.Options.Split, on.Options.Math = c.math == F32, c.math
		launches := dev.plan(op, on)
		if launches[0].Function != c.function {
			t.Fatalf("%s is launched", launches[0].Function)
		}
		dev.run(launches, 0)
		dev.download(on.Results[0], &y)
		worst, largest := 0.0, 0.0
		wide := values(&w)
		for i, got := range y.F32 {
			sum := 0.0
			for j, v := range x.F32[i/n*k:][:k] {
				sum += float64(v) * wide[i%n*k+j]
			}
			worst, largest = max(worst, math.Abs(float64(got)-sum)), max(largest, math.Abs(sum))
		}
		t.Logf("%s, positive %v: off by %.2g of the largest", c.function, c.positive, worst/largest)
		if !(worst <= c.most*largest) {
			t.Errorf("%s, positive %v: off by %.2g of the largest, at most %.2g", c.function, c.positive, worst/largest, c.most)
		}
	}
}
