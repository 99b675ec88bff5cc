package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// scanCase is a call of selective_scan with several sequences.
type scanCase struct {
	*kernels.Call
	state kernels.Tensor
}

func newScan(rng *rand.Rand, channels, n, groups int, lengths ...int) scanCase {
	tokens := 0
	seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{len(lengths), 3, 1, 1}, Cols: 3, Stride: 3}
	for i, l := range lengths {
		seg.I32 = append(seg.I32, int32(tokens), int32(l), int32(len(lengths)-1-i))
		tokens += l
	}
	draw := func(rows, cols int, f func() float32) kernels.Tensor {
		x := table(graph.F32, rows, cols, cols+rng.IntN(3), rng.IntN(8))
		x.Axis, x.Full, x.Unit = 1, cols, 1
		fill(&x, f)
		return x
	}
	gauss := func() float32 { return float32(rng.NormFloat64()) }
	dt := draw(tokens, channels, func() float32 { return float32(math.Exp(2*rng.NormFloat64() - 2)) })
	a := draw(channels, n, func() float32 { return -float32(math.Exp(2 * rng.NormFloat64())) })
	state := table(graph.F32, len(lengths), channels*n, channels*n, rng.IntN(8))
	fill(&state, gauss)
	y := draw(tokens, channels, func() float32 { return 1e30 })
	return scanCase{&kernels.Call{
		Args:    []kernels.Tensor{draw(tokens, channels, gauss), dt, a, draw(tokens, groups*n, gauss), draw(tokens, groups*n, gauss), state, seg},
		Results: []kernels.Tensor{y, state},
	}, state}
}

// want runs the recurrence in float64; size is the sum of what is added, without signs.
func (c scanCase) want(s, ch int, h []float64, each func(t int, y, size float64)) {
	u, dt, a, b, cc := &c.Args[0], &c.Args[1], &c.Args[2], &c.Args[3], &c.Args[4]
	n := a.Cols
	g := ch * (b.Cols / n) / u.Cols * n
	start, tokens, slot := c.Args[6].Segment(s)
	sizes := make([]float64, n)
	for k := range n {
		h[k] = float64(c.state.F32[slot*c.state.Stride+ch*n+k])
		sizes[k] = math.Abs(h[k])
	}
	for t := start; t < start+tokens; t++ {
		var y, size float64
		for k := range n {
			d := float64(dt.Row(t)[ch])
			decay := math.Exp(d * float64(a.Row(ch)[k]))
			in := d * float64(u.Row(t)[ch]) * float64(b.Row(t)[g+k])
			h[k] = decay*h[k] + in
			sizes[k] = decay*sizes[k] + math.Abs(in)
			y += h[k] * float64(cc.Row(t)[g+k])
			size += sizes[k] * math.Abs(float64(cc.Row(t)[g+k]))
		}
		each(t, y, size)
	}
}

// TestScan compares with float64, for states and channels of all sizes, and lets a prompt
// and its work be cut anywhere.
func TestScan(t *testing.T) {
	eachISA(t, "selective_scan", func(t *testing.T, _ string, k kernels.Kernel) {
		rng := rand.New(rand.NewPCG(7, 0))
		var worst, squares, count float64
		for i := range 150 {
			n, channels, groups := 1+i%66, 1+rng.IntN(140), 1
			if i%5 == 0 {
				n, channels, groups = 16, 48*(1+rng.IntN(3)), 3
			}
			lengths := []int{rng.IntN(5), 1, 1 + rng.IntN(20)}
			what := fmt.Sprintf("case %d: %d states of %d channels, %v tokens", i, n, channels, lengths)
			c := newScan(rng, channels, n, groups, lengths...)
			old := append([]float32(nil), c.state.F32...)
			check := func(got *kernels.Tensor) {
				after := append([]float32(nil), c.state.F32...)
				copy(c.state.F32, old)
				h := make([]float64, n)
				for s := range lengths {
					for ch := range channels {
						c.want(s, ch, h, func(tok int, y, size float64) {
							e := math.Abs(float64(got.Row(tok)[ch])-y) / (size*0x1p-24 + 0x1p-149)
							worst, squares, count = max(worst, e), squares+e*e, count+1
							if !(e <= 6+math.Sqrt(float64(n))) {
								t.Fatalf("%s: y[%d][%d] is %g, want %g: %g", what, tok, ch, got.Row(tok)[ch], y, e)
							}
						})
						_, _, slot := c.Args[6].Segment(s)
						for j, v := range h {
							if got := after[slot*c.state.Stride+ch*n+j]; !(math.Abs(float64(got)-v) <= 1e-5*(1+math.Abs(v))) {
								t.Fatalf("%s: state %d of channel %d is %g, want %g", what, j, ch, got, v)
							}
						}
					}
				}
				copy(c.state.F32, after)
			}
			units := k.Units(c.Call)
			cut := rng.IntN(units + 1)
			k.Run(c.Call, cut, units)
			k.Run(c.Call, 0, cut)
			check(&c.Results[0])
			for j, v := range c.Results[0].F32 {
				if j%c.Results[0].Stride >= channels && v != 1e30 {
					t.Fatalf("%s: wrote to element %d between the rows", what, j)
				}
			}
			// One token after the other.
			final := append([]float32(nil), c.state.F32...)
			copy(c.state.F32, old)
			seg := c.Args[6].I32
			whole := append([]int32(nil), seg...)
			y := c.Results[0]
			c.Results[0] = like(y)
			for s := range lengths {
				for tok := range lengths[s] {
					for r := range lengths {
						copy(seg[3*r:], []int32{whole[3*r], 0, whole[3*r+2]})
					}
					copy(seg[3*s:], []int32{whole[3*s] + int32(tok), 1, whole[3*s+2]})
					k.Run(c.Call, 0, units)
				}
			}
			for tok := range y.Rows() {
				for ch, v := range y.Row(tok) {
					if got := c.Results[0].Row(tok)[ch]; math.Float32bits(got) != math.Float32bits(v) {
						t.Fatalf("%s: y[%d][%d] is %g, and %g token by token", what, tok, ch, v, got)
					}
				}
			}
			for j, v := range final {
				if c.state.F32[j] != v {
					t.Fatalf("%s: state %d is %g, and %g token by token", what, j, v, c.state.F32[j])
				}
			}
		}
		t.Logf("errors of y in units of 2^-24 of what is added up: worst %.2f, rms %.3f", worst, math.Sqrt(squares/count))
	})
}
