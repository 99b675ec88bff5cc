package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// TestMailboxNorm: an AllReduce with an add_rmsnorm behind it in one launch has the bits of both
// one after the other, turn after turn, in place or not; it waits for each rank.
func TestMailboxNorm(t *testing.T) {
	const eps = 1e-5
	rng := rand.New(rand.NewPCG(3, 0))
	for _, c := range []struct {
		ranks, rows, cols, gap int
		in                     graph.DType // of what is normed
	}{
		{2, 1, 1, 0, graph.F32}, {3, 2, 67, 0, graph.F32}, {2, 3, 1021, 0, graph.BF16}, {4, 2, 1024, 4, graph.F32}, {8, 1, 2561, 0, graph.F32}, {3, 3, 1540, 0, graph.F32}, {2, 5, 1025, 3, graph.BF16},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			p := newPost(t, c.ranks, 64<<10)
			for _, m := range p.ranks {
				m.OneShot = 1 << 30
			}
			w := random(rng, graph.F32, 1, c.cols, c.cols)
			weight := p.dev.upload(&w, 0)
			for turn := range 3 {
				h := random(rng, graph.F32, c.rows, c.cols, c.cols)
				a := p.dev.upload(&h, 0)
				y := random(rng, c.in, c.rows, c.cols, c.cols)
				var args []Tensor
				for range c.ranks {
					x := random(rng, graph.F32, c.rows, c.cols, c.cols+c.gap)
					args = append(args, p.dev.upload(&x, 0))
				}
				sum := p.dev.empty(&h, 0)
				own := args[0]
				own.Ptr = p.dev.alloc(c.rows * own.Stride * 4)
				list, err := PeerSum([]Tensor{own}, args, true)
				if err != nil {
					t.Fatal(err)
				}
				normed := p.dev.empty(&y, 0)
				call := &Call{Args: []Tensor{a, own, weight}, Results: []Tensor{sum, normed}, Attrs: graph.Attrs{"eps": eps}}
				behind, err := Kernels["add_rmsnorm"].Launches(call)
				if err != nil {
					t.Fatal(err)
				}
				p.dev.run(append(list, behind...), 1)
				wantS, wantY := clone(&h), clone(&y)
				p.dev.download(sum, &wantS)
				p.dev.download(normed, &wantY)

				all := make([][]Launch, c.ranks)
				results := make([][2]Tensor, c.ranks)
				for r, m := range p.ranks {
					s, out := p.dev.empty(&h, 0), p.dev.empty(&y, 0)
					if turn == 1 && c.gap == 0 { // where the operand was
						s = args[r]
					}
					var ok bool
					if all[r], ok = m.AllReduceNorm(s, out, a, args[r], weight, eps); !ok {
						t.Fatal("refused")
					}
					results[r] = [2]Tensor{s, out}
				}
				if onDevice == "" && turn == 0 {
					var fault *ptx.Fault
					if err := p.dev.launch(all[0][1], 1); !errors.As(err, &fault) || fault.Kind != ptx.Waits {
						t.Errorf("before anybody has sent: %v", err)
					}
				}
				p.run(all, uint64(turn+1))
				for r := range results {
					gotS, gotY := clone(&h), clone(&y)
					p.dev.download(results[r][0], &gotS)
					p.dev.download(results[r][1], &gotY)
					same(t, fmt.Sprintf("turn %d, sum of rank %d", turn, r), &gotS, &wantS, 0)
					same(t, fmt.Sprintf("turn %d, norm of rank %d", turn, r), &gotY, &wantY, 0)
				}
			}
		})
	}
}

// TestMailboxNormRefuses: what overlaps with the operand elsewhere, is larger than fits or takes
// two shots is not done in one launch.
func TestMailboxNormRefuses(t *testing.T) {
	m := &Mailbox{Ranks: 3, Bytes: 64 << 10, OneShot: 32 << 10}
	at := func(ptr uint64, d graph.DType, rows, cols int) Tensor {
		return Tensor{Ptr: ptr, Tensor: kernels.Tensor{DType: d, Cols: cols, Stride: cols, Dims: [6]int{rows, cols, 1, 1, 1, 1}}}
	}
	x := at(1<<20, graph.F32, 4, 1000)
	for _, c := range []struct {
		what string
		s, y Tensor
		x    Tensor
		ok   bool
	}{
		{"apart", at(1<<21, graph.F32, 4, 1000), at(1<<22, graph.F32, 4, 1000), x, true},
		{"s in x's place", x, at(1<<22, graph.F32, 4, 1000), x, true},
		{"right behind", at(1<<20+16000, graph.F32, 4, 1000), at(1<<20-16000, graph.F32, 4, 1000), x, true},
		{"a row further", at(1<<20+4000, graph.F32, 4, 1000), at(1<<22, graph.F32, 4, 1000), x, false},
		{"y ends in it", at(1<<21, graph.F32, 4, 1000), at(1<<20-15996, graph.F32, 4, 1000), x, false},
		{"y in bf16 in its place", at(1<<21, graph.F32, 4, 1000), at(1<<20, graph.BF16, 4, 1000), x, false},
		{"two shots", at(1<<21, graph.F32, 5, 1000), at(1<<22, graph.F32, 5, 1000), at(1<<20, graph.F32, 5, 1000), false},
		{"nothing", at(1<<21, graph.F32, 0, 1000), at(1<<22, graph.F32, 0, 1000), at(1<<20, graph.F32, 0, 1000), false},
	} {
		if _, ok := m.AllReduceNorm(c.s, c.y, at(1<<23, graph.F32, 4, 1000), c.x, at(1<<24, graph.F32, 1, 1000), 1e-5); ok != c.ok {
			t.Errorf("%s: %v", c.what, ok)
		}
	}
}
