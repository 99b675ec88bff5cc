package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// keptTypes are the formats of a KV cache.
var keptTypes = graph.CacheState.Formats()

// lookCase is sequences with tokens before them, and heads in groups that share keys.
type lookCase struct {
	past, lengths       []int
	heads, groups, size int
	kept                graph.DType
}

func (s lookCase) call(rng *rand.Rand) *kernels.Call {
	tokens, context := 0, 0
	seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{len(s.lengths), 3, 1, 1}}
	past := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{len(s.lengths), 1, 1, 1}}
	for i, n := range s.lengths {
		seg.I32 = append(seg.I32, int32(tokens), int32(n), int32(len(s.lengths)-1-i))
		past.I32 = append(past.I32, int32(s.past[i]))
		tokens, context = tokens+n, max(context, s.past[i]+n)
	}
	gauss := func() float32 { return float32(rng.NormFloat64()) }
	some := func(heads int) kernels.Tensor {
		x := table(graph.F32, tokens, heads*s.size, heads*s.size+rng.IntN(3), rng.IntN(8))
		x.Full, x.Unit = heads*s.size, s.size
		fill(&x, gauss)
		return x
	}
	cache := func() kernels.Tensor {
		context := context + rng.IntN(3)
		x := table(s.kept, len(s.lengths)*context, s.groups*s.size, s.groups*s.size+rng.IntN(3), rng.IntN(8))
		x.Dims, x.Full = [graph.MaxRank]int{len(s.lengths), context, s.groups * s.size, 1}, s.groups*s.size
		fill(&x, gauss)
		return x
	}
	y := some(s.heads)
	fill(&y, func() float32 { return 1e30 })
	keys := cache()
	values := keys // of the same shape
	values.F32, values.U16, values.U8 = slices.Clone(keys.F32), slices.Clone(keys.U16), slices.Clone(keys.U8)
	fill(&values, gauss)
	return &kernels.Call{
		Args:    []kernels.Tensor{some(s.heads), some(s.groups), some(s.groups), keys, values, seg, past},
		Results: []kernels.Tensor{y}, Attrs: graph.Attrs{"scale": 1 / math.Sqrt(float64(s.size))},
	}
}

// TestAttention compares with float64, around the ends of blocks of keys, of rows of
// tiles and of sums. A token has the same bits alone, fed by itself after the others.
func TestAttention(t *testing.T) {
	const seed = 17
	rng := rand.New(rand.NewPCG(seed, 0))
	var cases []lookCase
	var calls, exactly []*kernels.Call
	n := 36
	if goldens.Few(t) {
		n = 16 // each format with each size
	}
	for i := range n {
		s := lookCase{groups: 1 + rng.IntN(2), size: []int{16, 32, 1 + i, 48}[i%4], kept: keptTypes[i/4%4]}
		s.heads = s.groups * (1 + rng.IntN(2))
		for range 1 + rng.IntN(2) {
			s.past = append(s.past, []int{0, 0, 1, 31, 100, 127, 128, 130, 260}[rng.IntN(9)])
			s.lengths = append(s.lengths, []int{1, 2, 5, 6, 7, 24, 25, 33, 63, 70}[rng.IntN(10)])
		}
		c := s.call(rng)
		cases, calls, exactly = append(cases, s), append(calls, c), append(exactly, exact("attention", copied(c, 3, 4)))
	}
	eachISA(t, "attention", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(seed, 1))
		for i, s := range cases {
			what := fmt.Sprintf("seed %d, case %d: %+v", seed, i, s)
			c, want := calls[i], exactly[i]
			got := copied(c, 3, 4)
			units := kernel.Units(got)
			cut := rng.IntN(units + 1)
			kernel.Run(got, cut, units)
			kernel.Run(got, 0, cut)
			if _, most := distance(&got.Results[0], &want.Results[0]); !(most <= 3e-6) {
				t.Fatalf("%s: off by %.2g", what, most)
			}
			for k := range got.Results[0].F32 {
				if y := &got.Results[0]; k%y.Stride >= y.Cols && y.F32[k] != 1e30 {
					t.Fatalf("%s: wrote to element %d between the rows", what, k)
				}
			}
			one := copied(c, 3, 4)
			for k, n := range s.lengths {
				start, _, slot := c.Args[5].Segment(k)
				for from := 0; from < n; {
					some := min(n-from, 1+rng.IntN(2)*rng.IntN(40))
					one.Args[5].I32 = []int32{int32(start + from), int32(some), int32(slot)}
					one.Args[5].Dims[0] = 1
					one.Args[6].I32 = []int32{int32(s.past[k] + from)}
					kernel.Run(one, 0, kernel.Units(one))
					from += some
				}
				for i := start; i < start+n; i++ {
					if !equalBits(one.Results[0].Row(i), got.Results[0].Row(i)) {
						t.Fatalf("%s: token %d has other bits in pieces", what, i)
					}
				}
			}
			for arg := 3; arg < 5; arg++ {
				for slot := range s.lengths {
					if !sameState(&one.Args[arg], &got.Args[arg], slot*one.Args[arg].Dims[1]) {
						t.Fatalf("%s: the cache is other bits in pieces", what)
					}
				}
			}
		}
	})
}

// TestAttentionAccuracy: each instruction set is as near to float64 as the plain kernel.
func TestAttentionAccuracy(t *testing.T) {
	for _, s := range []lookCase{
		{past: []int{0}, lengths: []int{200}},
		{past: []int{999}, lengths: []int{1}},
	} {
		s.heads, s.groups, s.size, s.kept = 4, 2, 64, graph.F32
		c := s.call(rand.New(rand.NewPCG(18, 0)))
		for i := range c.Args[0].F32 {
			c.Args[0].F32[i] *= 3 // scores that differ
		}
		want := exact("attention", copied(c, 3, 4))
		off := func(k kernels.Kernel) float64 {
			got := copied(c, 3, 4)
			k.Run(got, 0, k.Units(got))
			mean, _ := distance(&got.Results[0], &want.Results[0])
			return mean
		}
		plain := off(Kernels["attention"])
		t.Logf("%d after %d: plain is off by %.2g", s.lengths[0], s.past[0], plain)
		eachISA(t, "attention", func(t *testing.T, isa string, k kernels.Kernel) {
			mean := off(k)
			t.Logf("%.2g", mean)
			if !(mean <= plain) {
				t.Errorf("off by %.2g, the plain kernel by %.2g", mean, plain)
			}
		})
	}
}

// TestAttentionSpecial: where a number is not finite, results are numbers where the plain
// kernel's are; tokens before it do not see it.
func TestAttentionSpecial(t *testing.T) {
	inf := float32(math.Inf(1))
	eachISA(t, "attention", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(19, 0))
		for _, size := range []int{3, 16} {
			for arg := range 5 {
				for _, v := range []float32{float32(math.NaN()), inf, -inf, math.MaxFloat32, 0x1p-149, 0} {
					for _, s := range []lookCase{
						{past: []int{0}, lengths: []int{40}}, {past: []int{135}, lengths: []int{1}}, {past: []int{120}, lengths: []int{12}},
					} {
						s.heads, s.groups, s.size, s.kept = 2, 1, size, graph.F32
						c := s.call(rng)
						c.Args[arg].F32[rng.IntN(len(c.Args[arg].F32))] = v
						plain, got := copied(c, 3, 4), copied(c, 3, 4)
						Kernels["attention"].Run(plain, 0, 1)
						kernel.Run(got, 0, 1)
						for i, want := range plain.Results[0].F32 {
							if g := got.Results[0].F32[i]; !alike(g, want) {
								t.Fatalf("size %d, %+v, %g in operand %d: %d is %g, the plain kernel's %g", size, s, v, arg, i, g, want)
							}
						}
					}
				}
			}
		}
	})
}

// inPages puts the KV cache of a call's sequences into pages of a number of tokens, in any order.
func inPages(c *kernels.Call, tokens int, rng *rand.Rand) *kernels.Call {
	d := copied(c)
	keys, seqs := &c.Args[3], c.Args[5].Rows()
	each := (keys.Dims[1] + tokens - 1) / tokens
	size := tokens * keys.Cols * keys.DType.Bytes()
	p := &kernels.Pages{Tokens: tokens, Of: make([][]int32, seqs)}
	for range seqs*each + 3 {
		p.Memory = append(p.Memory, make([]byte, 2*size))
	}
	order := rng.Perm(len(p.Memory))
	for s := range seqs {
		for i := range each {
			p.Of[s] = append(p.Of[s], int32(order[s*each+i]))
		}
	}
	for i, arg := range []int{3, 4} {
		from, to := &c.Args[arg], &d.Args[arg]
		to.F32, to.U16, to.U8, to.Pages, to.InPage, to.Stride = nil, nil, nil, p, i*size, to.Cols
		for s := range seqs {
			_, _, slot := c.Args[5].Segment(s)
			for token := range keys.Dims[1] {
				rows, at, _ := to.Cached(s, slot, token)
				rows.Copy(at, from, (slot*keys.Dims[1]+token)*from.Stride, from.Cols)
			}
		}
	}
	return d
}

// TestAttentionPages: pages of any size give the bits of caches in one piece, as do their
// rows afterwards.
func TestAttentionPages(t *testing.T) {
	eachISA(t, "attention", func(t *testing.T, isa string, kernel kernels.Kernel) {
		const seed = 20
		rng := rand.New(rand.NewPCG(seed, 0))
		for i, tokens := range []int{1, 3, 16, 48, 128, 1000, 7, 127, 129, 256} {
			s := lookCase{groups: 2, heads: 4, size: []int{16, 5, 32}[i%3], kept: keptTypes[(i+i/4)%4],
				past: []int{0, 126, 260, 400}, lengths: []int{[]int{70, 1}[i%2], 5, 1, 1}}
			c := s.call(rng)
			got := inPages(c, tokens, rng)
			want := copied(c, 3, 4)
			kernel.Run(want, 0, kernel.Units(want))
			kernel.Run(got, 0, kernel.Units(got))
			if !equalBits(got.Results[0].F32, want.Results[0].F32) {
				t.Fatalf("seed %d, pages of %d: %+v: other bits than in one piece", seed, tokens, s)
			}
			for k := range s.lengths {
				_, _, slot := c.Args[5].Segment(k)
				for arg := 3; arg < 5; arg++ {
					for token := range s.past[k] + s.lengths[k] {
						rows, at, _ := got.Args[arg].Cached(k, slot, token)
						x, y := make([]float32, rows.Cols), make([]float32, rows.Cols)
						rows.Read(x, at)
						want.Args[arg].Read(y, (slot*want.Args[arg].Dims[1]+token)*want.Args[arg].Stride)
						if !equalBits(x, y) {
							t.Fatalf("pages of %d: token %d of sequence %d is kept otherwise", tokens, token, k)
						}
					}
				}
			}
		}
	})
}
