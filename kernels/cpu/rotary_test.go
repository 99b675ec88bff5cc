package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestRotary compares with float64 at positions up to the last: a rotation is rounded about once.
// However tokens are cut, results are the same bits; channels behind the first are as they were.
func TestRotary(t *testing.T) {
	eachISA(t, "rotary", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(20, 0))
		for i := range 200 {
			unit := 2 + 2*rng.IntN(40)
			dims := 2 + 2*rng.IntN(unit/2)
			theta := []float64{10000, 1, 1e6, 0.1}[i%4]
			past := []int32{0, 5, 1 << 20, math.MaxInt32 - 20}[rng.IntN(4)]
			const tokens, heads = 9, 2
			x, y := table(graph.F32, tokens, heads*unit, heads*unit+rng.IntN(3), rng.IntN(8)), table(graph.F32, tokens, heads*unit, heads*unit+rng.IntN(3), rng.IntN(8))
			x.Unit, y.Unit = unit, unit
			fill(&x, func() float32 { return float32(rng.NormFloat64()) })
			fill(&y, func() float32 { return 1e30 })
			seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{2, 3, 1, 1}, I32: []int32{0, 4, 0, 4, 5, 1}}
			c := &kernels.Call{Args: []kernels.Tensor{x, seg, {I32: []int32{past, 3}}}, Results: []kernels.Tensor{y},
				Attrs: graph.Attrs{"theta": theta, "dims": dims}}
			units := kernel.Units(c)
			cut := rng.IntN(units + 1)
			kernel.Run(c, cut, units)
			kernel.Run(c, 0, cut)
			for token := range tokens {
				position := float64(past) + float64(token)
				if token >= 4 {
					position = float64(3 + token - 4)
				}
				for j := range heads * unit {
					want, size, pair := float64(x.Row(token)[j]), 0.0, j%unit
					if pair < dims {
						k := pair % (dims / 2)
						sin, cos := math.Sincos(position * math.Pow(theta, -2*float64(k)/float64(dims)))
						a, b := float64(x.Row(token)[j-pair+k]), float64(x.Row(token)[j-pair+k+dims/2])
						size = math.Hypot(a, b)
						want = a*cos - b*sin
						if pair >= dims/2 {
							want = b*cos + a*sin
						}
					}
					if got := float64(y.Row(token)[j]); !(math.Abs(got-want) <= 0x1.8p-23*size) {
						t.Fatalf("case %d, token %d, channel %d of %d, %d turned, theta %g: %g, want %g", i, token, j, unit, dims, theta, got, want)
					}
				}
			}
			for k, v := range y.F32 {
				if k%y.Stride >= y.Cols && v != 1e30 {
					t.Fatalf("case %d: wrote to element %d between the rows", i, k)
				}
			}
			alone := table(graph.F32, tokens, heads*unit, heads*unit, 0)
			for token := range tokens {
				one := *c
				one.Results = []kernels.Tensor{alone}
				kernel.Run(&one, min(token, units-1), min(token, units-1)+1)
			}
			for token := range tokens {
				if !equalBits(alone.Row(token), y.Row(token)) {
					t.Fatalf("case %d: token %d has other bits alone", i, token)
				}
			}
		}
	})
}
