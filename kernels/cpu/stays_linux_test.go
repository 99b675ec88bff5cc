package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/choices"
	"github.com/krait-ml/krait/kernels"
)

// atEnds moves each operand and result to the end of memory of its own.
func atEnds(t *testing.T, c *kernels.Call) {
	for _, tensors := range [][]kernels.Tensor{c.Args, c.Results} {
		for i := range tensors {
			x := &tensors[i]
			f, u, b := guarded[float32](t, len(x.F32)), guarded[uint16](t, len(x.U16)), guarded[byte](t, len(x.U8))
			copy(f, x.F32)
			copy(u, x.U16)
			copy(b, x.U8)
			if x.F32 != nil {
				x.F32 = f
			}
			if x.U16 != nil {
				x.U16 = u
			}
			if x.U8 != nil {
				x.U8 = b
			}
		}
	}
}

// TestScansStay: no element behind the operands and the results is touched.
func TestScansStay(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 0))
	eachISA(t, "ssd_scan", func(t *testing.T, isa string, k kernels.Kernel) {
		for i := range 40 {
			s := ssdCase{lengths: []int{1 + rng.IntN(50)}, heads: 2, groups: 1, size: 1 + i, n: 1 + rng.IntN(40), kept: weightTypes[i%3], rate: 1, step: 0.1}
			if i%4 == 0 {
				s.size = 16 * (1 + i/8)
			}
			c := s.call(rng)
			atEnds(t, c)
			k.Run(c, 0, k.Units(c))
		}
	})
}

func TestDeltaStays(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 0))
	eachISA(t, "delta_scan", func(t *testing.T, isa string, k kernels.Kernel) {
		for i := range 40 {
			s := deltaCase{lengths: []int{1 + rng.IntN(30)}, groups: 1, each: 2, n: 1 + rng.IntN(20), size: 1 + i, vector: i%2 == 0, kept: weightTypes[i%3], leastDecay: -1, mostBeta: 1}
			if i%4 == 0 {
				s.size = 32 * (1 + i/16)
			}
			c := s.call(rng)
			atEnds(t, c)
			k.Run(c, 0, k.Units(c))
		}
	})
}

func TestAttentionStays(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 0))
	eachISA(t, "attention", func(t *testing.T, isa string, k kernels.Kernel) {
		for i := range 40 {
			s := lookCase{past: []int{rng.IntN(150)}, lengths: []int{1 + i%3*rng.IntN(20)}, heads: 4, groups: 2, size: 1 + i, kept: keptTypes[i%4]}
			if i%4 == 0 {
				s.size = 16 * (1 + i/8)
			}
			c := s.call(rng)
			atEnds(t, c)
			k.Run(c, 0, k.Units(c))
		}
	})
}

func TestRotaryStays(t *testing.T) {
	eachISA(t, "rotary", func(t *testing.T, isa string, k kernels.Kernel) {
		for half := 1; half <= 33; half++ {
			x, y := table(graph.F32, 3, 4*half, 4*half, 0), table(graph.F32, 3, 4*half, 4*half, 0)
			x.Unit, y.Unit = 2*half, 2*half
			c := &kernels.Call{Args: []kernels.Tensor{x, {Dims: [graph.MaxRank]int{1, 3, 1, 1}, I32: []int32{0, 3, 0}}, {I32: []int32{5}}}, Results: []kernels.Tensor{y},
				Attrs: graph.Attrs{"theta": 1e4, "dims": 2 * half}}
			atEnds(t, c)
			k.Run(c, 0, k.Units(c))
		}
	})
}

func TestChooseStays(t *testing.T) {
	eachISA(t, "choose", func(t *testing.T, isa string, k kernels.Kernel) {
		for n := 1; n <= 100; n++ {
			c := choices.Call(choices.Case{Logits: modelLogits(n), Choice: kernels.Choice{Temperature: float64(n % 2), TopP: 0.9}})
			atEnds(t, &c)
			k.Run(&c, 0, 1)
		}
	})
}
