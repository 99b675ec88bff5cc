package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestNorm compares with float64: sums of squares are exact to the last place, and what
// is made of them is rounded as often as the instruction set says.
func TestNorm(t *testing.T) {
	roundings := map[string]float64{"plain": 3, "avx2": 1, "avx512": 1, "avx512_bf16": 1, "amx": 1, "neon": 1} // halves of a place
	eachISA(t, "rmsnorm", func(t *testing.T, isa string, k kernels.Kernel) {
		set, err := ForISA(isa)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(11, 0))
		for n := range 140 {
			if n > 130 {
				n = 500 + rng.IntN(3000)
			}
			x, w, y := table(graph.F32, 3, n, n+n%3, n%8), table(graph.F32, n, 1, 1, n%5), table(graph.F32, 3, n, n+n%2, n%7)
			gauss := func() float32 { return float32(rng.NormFloat64() * math.Exp(4*rng.NormFloat64())) }
			fill(&x, gauss)
			fill(&w, gauss)
			sums := table(graph.F32, 3, 1, 1, 0)
			k.Run(&kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}, Attrs: graph.Attrs{"eps": 1e-5}}, 0, 3)
			set["sumsq"].Run(&kernels.Call{Args: []kernels.Tensor{x}, Results: []kernels.Tensor{sums}}, 0, 3)
			for i := range 3 {
				var sum float64
				for _, v := range x.Row(i) {
					sum += float64(v) * float64(v)
				}
				what := fmt.Sprintf("%d elements", n)
				if e := ulps(sums.F32[i], sum); e > 0.5001 {
					t.Fatalf("%s: the sum of squares is %g, want %g: %g", what, sums.F32[i], sum, e)
				}
				for j, v := range x.Row(i) {
					want := float64(w.F32[j]) * float64(v) / math.Sqrt(sum/float64(n)+1e-5)
					if e := ulps(y.Row(i)[j], want); e > 1.0001*roundings[isa] || isa != plain && e > 0.5001 {
						t.Fatalf("%s: element %d is %g, want %g: %g", what, j, y.Row(i)[j], want, e)
					}
				}
			}
		}
		// A sum that leaves f32 between ranks is a NaN; here it is none.
		x, w, y := table(graph.F32, 1, 20, 20, 0), table(graph.F32, 20, 1, 1, 0), table(graph.F32, 1, 20, 20, 0)
		fill(&x, func() float32 { return math.MaxFloat32 })
		fill(&w, func() float32 { return 1 })
		k.Run(&kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}, Attrs: graph.Attrs{"eps": 1e-5}}, 0, 1)
		for _, v := range y.F32 {
			if math.Abs(float64(v)-1) > 1e-6 {
				t.Fatalf("the largest numbers give %g", v)
			}
		}
	})
}
