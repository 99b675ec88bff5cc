package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// deltaCase is sequences in a batch, their states in slots after each other, last first.
type deltaCase struct {
	lengths              []int
	groups, each         int // heads of keys, and of values for each
	n, size              int
	vector               bool // a decay for each row of a state
	kept                 graph.DType
	leastDecay, mostBeta float64 // log decays are from this to 0, and half of the betas near 0 or this
}

func (s deltaCase) call(rng *rand.Rand) *kernels.Call {
	tokens, heads, decays := 0, s.groups*s.each, 1
	if s.vector {
		decays = s.n
	}
	seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{len(s.lengths), 3, 1, 1}}
	for i, n := range s.lengths {
		seg.I32 = append(seg.I32, int32(tokens), int32(n), int32(len(s.lengths)-1-i))
		tokens += n
	}
	some := func(cols, unit int, f func() float64) kernels.Tensor {
		x := table(graph.F32, tokens, cols, cols+rng.IntN(3), rng.IntN(8))
		x.Full, x.Unit = cols, unit
		fill(&x, func() float32 { return float32(f()) })
		return x
	}
	g := some(heads*decays, decays, func() float64 { return s.leastDecay * math.Pow(rng.Float64(), 3) })
	beta := some(heads, 1, func() float64 {
		return s.mostBeta * []float64{rng.Float64(), rng.Float64(), 1e-6 * rng.Float64(), 1 - 1e-6*rng.Float64()}[rng.IntN(4)]
	})
	state := table(s.kept, len(s.lengths), heads*s.n*s.size, heads*s.n*s.size+rng.IntN(3), rng.IntN(8))
	state.Dims = [graph.MaxRank]int{len(s.lengths), heads, s.n, s.size}
	fill(&state, func() float32 { return float32(rng.NormFloat64()) })
	q, k := some(s.groups*s.n, s.n, rng.NormFloat64), some(s.groups*s.n, s.n, rng.NormFloat64)
	for i := range tokens {
		for group := range s.groups { // of length 1
			key := k.Row(i)[group*s.n : (group+1)*s.n]
			by := 1 / float32(math.Sqrt(squares(key)))
			for j := range key {
				key[j] *= by
			}
		}
	}
	v, y := some(heads*s.size, s.size, rng.NormFloat64), some(heads*s.size, s.size, func() float64 { return 1e30 })
	return &kernels.Call{Args: []kernels.Tensor{q, k, v, g, beta, state, seg}, Results: []kernels.Tensor{y}, Attrs: graph.Attrs{"scale": 1 / math.Sqrt(float64(s.n))}}
}

// drawDelta draws a case: lengths from 1 to 130, odd numbers of heads, decays from none to all.
func drawDelta(rng *rand.Rand, i int) deltaCase {
	s := deltaCase{groups: 1 + rng.IntN(3), each: 1 + rng.IntN(3), n: 1 + i%66, size: 1 + rng.IntN(70), vector: i%2 == 0,
		leastDecay: []float64{0, -1e-3, -1, -40, -1000}[rng.IntN(5)], mostBeta: float64(1 + rng.IntN(2))}
	s.kept = weightTypes[max(0, rng.IntN(5)-2)]
	for range 1 + rng.IntN(3) {
		s.lengths = append(s.lengths, []int{1, 2, 3, 15, 16, 17, 33, 64, 130}[rng.IntN(9)])
	}
	if i%3 == 0 { // columns that fill tiles
		s.size = 16 * (1 + rng.IntN(4))
	}
	if i%20 == 0 {
		s.n, s.size, s.lengths, s.vector = 128, 128, s.lengths[:1], i%40 == 0
	}
	return s
}

// TestDeltaScan compares with float64: sequences of no chunk, of some, and of parts of one. A
// sequence has the same bits alone, however heads are cut, and cut at multiples of 16 tokens;
// memory between rows stays as it was.
func TestDeltaScan(t *testing.T) {
	const seed = 34
	rng := rand.New(rand.NewPCG(seed, 0))
	var cases []deltaCase
	var calls, exactly []*kernels.Call
	for i := range 60 {
		s := drawDelta(rng, i)
		c := s.call(rng)
		cases, calls, exactly = append(cases, s), append(calls, c), append(exactly, exact("delta_scan", c, 5))
	}
	eachISA(t, "delta_scan", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(seed, 1))
		for i, s := range cases {
			what := fmt.Sprintf("seed %d, case %d: %+v", seed, i, s)
			c := calls[i]
			got := scanned(t, what, kernel, c, exactly[i], s.kept, rng)
			for k := range s.lengths {
				checkDeltaAlone(t, what, s, rng, kernel, c, got, k)
			}
		}
	})
}

// checkDeltaAlone runs sequence k by itself, in two parts.
func checkDeltaAlone(t *testing.T, what string, s deltaCase, rng *rand.Rand, kernel kernels.Kernel, c, all *kernels.Call, k int) {
	start, n, slot := c.Args[6].Segment(k)
	one, first := copied(c, 5), n
	if s.kept == graph.F32 {
		first = 16 * rng.IntN(n/16+1)
	}
	for _, from := range [][2]int{{0, first}, {first, n}} {
		if from[0] < from[1] {
			one.Args[6] = c.Args[6]
			one.Args[6].I32 = []int32{int32(start + from[0]), int32(from[1] - from[0]), int32(slot)}
			one.Args[6].Dims[0] = 1
			kernel.Run(one, 0, kernel.Units(one))
		}
	}
	for i := start; i < start+n; i++ {
		if !equalBits(one.Results[0].Row(i), all.Results[0].Row(i)) {
			t.Fatalf("%s: token %d has other bits alone, cut after %d", what, i, first)
		}
	}
	if !sameState(&one.Args[5], &all.Args[5], slot) {
		t.Fatalf("%s: sequence %d has another state alone, cut after %d", what, k, first)
	}
}

// TestDeltaAccuracy: over long prompts each instruction set is as near to float64 as the plain
// kernel. A state of which each row has its decay is a little less near, by products of decays.
func TestDeltaAccuracy(t *testing.T) {
	for _, least := range []float64{0, -0.1, -1, -8} {
		s := deltaCase{lengths: []int{512}, groups: 1, each: 1, n: 64, size: 32, vector: least == -1, kept: graph.F32, leastDecay: least, mostBeta: 1}
		c := s.call(rand.New(rand.NewPCG(35, 0)))
		want := exact("delta_scan", c, 5)
		off := func(k kernels.Kernel) (y, state float64) {
			got := copied(c, 5)
			k.Run(got, 0, k.Units(got))
			y, _ = distance(&got.Results[0], &want.Results[0])
			state, _ = distance(&got.Args[5], &want.Args[5])
			return y, state
		}
		y, state := off(Kernels["delta_scan"])
		t.Logf("decays from %g: plain is off by %.2g, its state by %.2g", least, y, state)
		eachISA(t, "delta_scan", func(t *testing.T, isa string, k kernels.Kernel) {
			a, b := off(k)
			t.Logf("%.2g and %.2g", a, b)
			most := 1.1
			if s.vector {
				most = 1.2
			}
			if !(a <= 1.1*y && b <= most*state) {
				t.Errorf("off by %.2g and the state by %.2g, the plain kernel by %.2g and %.2g", a, b, y, state)
			}
		})
	}
}

// TestDeltaSpecial: where a number is not finite, or almost as large as can be, in any operand and
// at any token, results are finite where the plain kernel's are, and no others.
func TestDeltaSpecial(t *testing.T) {
	inf := float32(math.Inf(1))
	eachISA(t, "delta_scan", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(36, 0))
		for _, size := range []int{3, 40, 48} {
			for arg := range 6 {
				for _, v := range []float32{float32(math.NaN()), inf, -inf, 0x1p120, 0x1p-149, 0} {
					s := deltaCase{lengths: []int{1 + rng.IntN(20)}, groups: 1, each: 2, n: 5, size: size, vector: rng.IntN(2) == 0, kept: graph.F32, leastDecay: -1, mostBeta: 1}
					c := s.call(rng)
					x := &c.Args[arg]
					if arg == 3 && v > 0 {
						v = -v // log decays are not positive
					}
					x.F32[rng.IntN(len(x.F32))] = v
					plain, got := copied(c, 5), copied(c, 5)
					Kernels["delta_scan"].Run(plain, 0, 2)
					kernel.Run(got, 0, 2)
					for what, pair := range map[string][2]*kernels.Tensor{"y": {&plain.Results[0], &got.Results[0]}, "state": {&plain.Args[5], &got.Args[5]}} {
						for i, want := range pair[0].F32 {
							if g := pair[1].F32[i]; g-g == 0 != (want-want == 0) {
								t.Fatalf("%+v, %g in operand %d: %s %d is %g, the plain kernel's %g", s, v, arg, what, i, g, want)
							}
						}
					}
				}
			}
		}
	})
}

// BenchmarkDeltaScan is a token and a prompt through a layer of 16 heads of keys and of values, by
// one goroutine. Bytes are those of states, read and written.
func BenchmarkDeltaScan(b *testing.B) {
	for _, tokens := range []int{1, 512} {
		for _, vector := range []bool{false, true} {
			s := deltaCase{lengths: []int{tokens}, groups: 16, each: 1, n: 128, size: 128, vector: vector, kept: graph.F32, leastDecay: -1, mostBeta: 1}
			if tokens == 1 {
				s.lengths = make([]int, 64) // as many layers, so that states come from memory
				for i := range s.lengths {
					s.lengths[i] = 1
				}
			}
			for _, isa := range ISAs() {
				b.Run(fmt.Sprintf("%d/vector=%v/%s", tokens, vector, isa), func(b *testing.B) {
					set, err := ForISA(isa)
					if err != nil {
						b.Fatal(err)
					}
					c := s.call(rand.New(rand.NewPCG(1, 1)))
					kernel, units := set["delta_scan"], len(s.lengths)*16
					b.SetBytes(2 * 4 * int64(units*s.n*s.size))
					for b.Loop() {
						kernel.Run(c, 0, units)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*units*s.lengths[0]), "ns/head")
				})
			}
		}
	}
}
