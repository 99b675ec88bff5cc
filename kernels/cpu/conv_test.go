package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestConv compares with float64, for channels and sequences of all sizes, and lets a
// prompt and its work be cut anywhere.
func TestConv(t *testing.T) {
	eachISA(t, "conv1d", func(t *testing.T, _ string, k kernels.Kernel) {
		rng := rand.New(rand.NewPCG(5, 0))
		gauss := func() float32 { return float32(rng.NormFloat64()) }
		for i := range 300 {
			channels, width, tokens := 1+i%140, 4, 1+rng.IntN(9)
			if i%7 == 0 {
				width = 1 + rng.IntN(5)
			}
			what := fmt.Sprintf("case %d: %d channels, width %d, %d tokens", i, channels, width, tokens)
			x, w := table(graph.F32, tokens, channels, channels+rng.IntN(3), rng.IntN(8)), table(graph.F32, channels, width, width+rng.IntN(3), rng.IntN(8))
			y, state := table(graph.F32, tokens, channels, channels+rng.IntN(3), rng.IntN(8)), table(graph.F32, 2, channels*(width-1), channels*(width-1), rng.IntN(8))
			for _, x := range []*kernels.Tensor{&x, &w, &state} {
				fill(x, gauss)
			}
			fill(&y, func() float32 { return 1e30 })
			old := append([]float32(nil), state.F32...)
			seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{2, 3, 1, 1}, Cols: 3, Stride: 3, I32: make([]int32, 6)}
			call := &kernels.Call{Args: []kernels.Tensor{x, w, state, seg}, Results: []kernels.Tensor{y, state}}
			for at := 0; at < tokens; { // a prompt in pieces, beside a sequence without tokens
				n := 1 + rng.IntN(tokens-at)
				copy(seg.I32, []int32{int32(at), int32(n), 1, 0, 0, 0})
				units := k.Units(call)
				cut := rng.IntN(units + 1)
				k.Run(call, cut, units)
				k.Run(call, 0, cut)
				at += n
			}
			keep := width - 1
			for ch := range channels {
				in := append([]float32(nil), old[channels*keep+ch*keep:][:keep]...)
				for tok := range tokens {
					in = append(in, x.Row(tok)[ch])
					var want, size float64
					for j := range width {
						p := float64(w.Row(ch)[j]) * float64(in[tok+j])
						want, size = want+p, size+math.Abs(p)
					}
					if got := y.Row(tok)[ch]; !(math.Abs(float64(got)-want) <= 4*0x1p-24*size) {
						t.Fatalf("%s: y[%d][%d] is %g, want %g", what, tok, ch, got, want)
					}
				}
				for j := range keep {
					if got := state.F32[channels*keep+ch*keep+j]; got != in[tokens+j] {
						t.Fatalf("%s: state %d of channel %d is %g, want %g", what, j, ch, got, in[tokens+j])
					}
				}
			}
			for j, v := range y.F32 {
				if j%y.Stride >= channels && v != 1e30 {
					t.Fatalf("%s: wrote to element %d between the rows", what, j)
				}
			}
			for j, v := range old[:channels*keep] {
				if state.F32[j] != v {
					t.Fatalf("%s: the other sequence's state %d is %g, was %g", what, j, state.F32[j], v)
				}
			}
		}
	})
}
