package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
)

// randomRows is a tensor of numbers in [-1, 1).
func randomRows(rows, cols int) *kernels.Tensor {
	t := &kernels.Tensor{DType: graph.F32, Cols: cols, Stride: cols, F32: make([]float32, rows*cols)}
	t.Dims[0] = rows
	for i := range t.F32 {
		t.F32[i] = 2*rand.Float32() - 1
	}
	return t
}

// TestSSDChunk: the matrix form is the recurrence, also where the rate is so large
// that after one token all is gone, and after others not.
func TestSSDChunk(t *testing.T) {
	const size, n = 5, 7
	for _, rate := range []float32{-1, -1e30, -math.MaxFloat32} {
		for q := 1; q <= ssdChunk; q++ {
			dt := randomRows(q, 1)
			for i, v := range dt.F32 {
				if dt.F32[i] = (v + 1) / -rate; i == 2 || i == 5 {
					dt.F32[i] = 3
				}
			}
			h := ssdHead{x: randomRows(q, size), dt: dt, b: randomRows(q, n), c: randomRows(q, n), y: randomRows(q, size),
				size: size, n: n, rate: rate, h: randomRows(size, n).F32}
			other := h
			other.y, other.h = randomRows(q, size), slices.Clone(h.h)
			h.recur(0, q)
			other.chunk(0, q)
			for what, pair := range map[string][2][]float32{"y": {h.y.F32, other.y.F32}, "state": {h.h, other.h}} {
				for i, want := range pair[0] {
					if got := pair[1][i]; !(math.Abs(float64(got-want)) <= 1e-5) {
						t.Fatalf("rate %g, %d tokens: %s %d is %g, want %g", rate, q, what, i, got, want)
					}
				}
			}
		}
	}
}

// ssdCase is sequences in a batch, their states in slots after each other, last first.
type ssdCase struct {
	lengths                []int
	heads, groups, size, n int
	kept                   graph.DType
	rate, step             float64 // rates and steps are up to these
}

// call makes operands of random numbers, at odd places in memory, rows apart.
func (s ssdCase) call(rng *rand.Rand) *kernels.Call {
	tokens := 0
	seg := kernels.Tensor{DType: graph.I32, Dims: [graph.MaxRank]int{len(s.lengths), 3, 1, 1}}
	for i, n := range s.lengths {
		seg.I32 = append(seg.I32, int32(tokens), int32(n), int32(len(s.lengths)-1-i))
		tokens += n
	}
	some := func(rows, cols, unit int) kernels.Tensor {
		x := table(graph.F32, rows, cols, cols+rng.IntN(3), rng.IntN(8))
		x.Full, x.Unit = cols, unit
		fill(&x, func() float32 { return float32(rng.NormFloat64()) })
		return x
	}
	dt, rate := some(tokens, s.heads, 1), table(graph.F32, s.heads, 1, 1, 0)
	fill(&dt, func() float32 { return float32(rng.Float64() * s.step) })
	fill(&rate, func() float32 { return float32(-rng.Float64() * s.rate) })
	state := table(s.kept, len(s.lengths), s.heads*s.size*s.n, s.heads*s.size*s.n+rng.IntN(3), rng.IntN(8))
	state.Dims = [graph.MaxRank]int{len(s.lengths), s.heads, s.size, s.n}
	fill(&state, func() float32 { return float32(rng.NormFloat64()) })
	x, b, c := some(tokens, s.heads*s.size, s.size), some(tokens, s.groups*s.n, s.n), some(tokens, s.groups*s.n, s.n)
	y := some(tokens, s.heads*s.size, s.size)
	fill(&y, func() float32 { return 1e30 })
	return &kernels.Call{Args: []kernels.Tensor{x, dt, rate, b, c, state, seg}, Results: []kernels.Tensor{y}}
}

// copied is a call with a state and results of its own.
func copied(c *kernels.Call, states ...int) *kernels.Call {
	d := &kernels.Call{Args: slices.Clone(c.Args), Results: slices.Clone(c.Results), Attrs: c.Attrs}
	for _, i := range states {
		x := &d.Args[i]
		x.F32, x.U16, x.U8 = slices.Clone(x.F32), slices.Clone(x.U16), slices.Clone(x.U8)
	}
	d.Results[0].F32 = slices.Clone(d.Results[0].F32)
	return d
}

// exact is what the float64 kernel gives, with states and results in float64.
func exact(op string, c *kernels.Call, states ...int) *kernels.Call {
	d := copied(c, states...)
	for _, i := range states {
		x := &d.Args[i]
		values := make([]float32, max(len(x.F32), len(x.U16), len(x.U8)))
		x.Read(values, 0)
		x.DType, x.F32, x.U16, x.U8 = graph.F64, nil, nil, nil
		for _, v := range values {
			x.F64 = append(x.F64, float64(v))
		}
	}
	y := &d.Results[0]
	y.DType, y.F64, y.F32 = graph.F64, make([]float64, len(y.F32)), nil
	reference.Kernels[op].Run(d, 0, 1)
	return d
}

// distance is the root of the mean square of what is off, as a share of that of what is
// wanted, and the most that is, as a share of the largest.
func distance(got, want *kernels.Tensor) (mean, most float64) {
	row := make([]float32, got.Cols)
	var off, all, worst, top float64
	for i := range max(1, len(want.F64)/max(1, want.Stride)) {
		got.Read(row, i*got.Stride)
		for j, v := range row {
			w := want.F64[i*want.Stride+j]
			d := float64(v) - w
			off, all = off+d*d, all+w*w
			worst, top = max(worst, math.Abs(d)), max(top, math.Abs(w))
			if d != d {
				worst = d
			}
		}
	}
	return math.Sqrt(off / all), worst / top
}

// scanned runs a scan in two parts, and holds its rows and states, which are in a format, to those
// in float64, and what lies between rows to what was there.
func scanned(t *testing.T, what string, kernel kernels.Kernel, c, want *kernels.Call, kept graph.DType, rng *rand.Rand) *kernels.Call {
	t.Helper()
	got := copied(c, 5)
	units := kernel.Units(got)
	cut := rng.IntN(units + 1)
	kernel.Run(got, cut, units)
	kernel.Run(got, 0, cut)
	if _, most := distance(&got.Results[0], &want.Results[0]); !(most <= 2e-6) {
		t.Fatalf("%s: y is off by %.2g", what, most)
	}
	within := map[graph.DType]float64{graph.F32: 2e-6, graph.BF16: 0x1p-8, graph.F16: 0x1p-11}[kept]
	if _, most := distance(&got.Args[5], &want.Args[5]); !(most <= within) {
		t.Fatalf("%s: the state is off by %.2g", what, most)
	}
	for j, v := range got.Results[0].F32 {
		if y := &got.Results[0]; j%y.Stride >= y.Cols && v != 1e30 {
			t.Fatalf("%s: wrote to element %d between the rows", what, j)
		}
	}
	return got
}

// TestSSDScan compares with float64: sequences of no chunk, of some, and of parts of one.
// A sequence has the same bits alone, however heads are cut, and cut at multiples of 16
// tokens; memory between rows stays as it was.
func TestSSDScan(t *testing.T) {
	const seed = 14
	rng := rand.New(rand.NewPCG(seed, 0))
	var cases []ssdCase
	var calls, exactly []*kernels.Call
	for i := range 80 {
		s := ssdCase{groups: 1 + rng.IntN(2), size: 1 + i%66, n: 1 + rng.IntN(66), rate: 4, step: 0.5}
		s.kept = weightTypes[max(0, rng.IntN(5)-2)]
		s.heads = s.groups * (1 + rng.IntN(2))
		for range 1 + rng.IntN(3) {
			s.lengths = append(s.lengths, []int{1, 3, 7, 8, 13, 16, 23, 24, 31, 48, 55}[rng.IntN(11)])
		}
		if i%40 == 0 {
			s.size, s.n = 64, 128
		}
		c := s.call(rng)
		cases, calls, exactly = append(cases, s), append(calls, c), append(exactly, exact("ssd_scan", c, 5))
	}
	eachISA(t, "ssd_scan", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(seed, 1))
		for i, s := range cases {
			what := fmt.Sprintf("seed %d, case %d: %v", seed, i, s)
			c := calls[i]
			got := scanned(t, what, kernel, c, exactly[i], s.kept, rng)
			for k := range s.lengths {
				start, n, _ := c.Args[6].Segment(k)
				one := copied(c, 5)
				first := n
				if s.kept == graph.F32 {
					first = 16 * rng.IntN(n/16+1)
				}
				for _, from := range [][2]int{{0, first}, {first, n}} {
					if from[0] < from[1] {
						one.Args[6] = c.Args[6]
						one.Args[6].I32 = []int32{int32(start + from[0]), int32(from[1] - from[0]), c.Args[6].I32[3*k+2]}
						one.Args[6].Dims[0] = 1
						kernel.Run(one, 0, kernel.Units(one))
					}
				}
				for i := start; i < start+n; i++ {
					if !equalBits(one.Results[0].Row(i), got.Results[0].Row(i)) {
						t.Fatalf("%s: token %d has other bits alone, cut after %d", what, i, first)
					}
				}
				if !sameState(&one.Args[5], &got.Args[5], len(s.lengths)-1-k) {
					t.Fatalf("%s: sequence %d has another state alone, cut after %d", what, k, first)
				}
			}
		}
	})
}

// TestSSDStepBF16: a single token with a state in bf16 has the bits of one with that state in f32,
// which is rounded afterwards.
func TestSSDStepBF16(t *testing.T) {
	eachISA(t, "ssd_scan", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(53, 0))
		for i, n := range []int{1, 8, 15, 16, 24, 32, 48, 128} {
			s := ssdCase{lengths: []int{1, 1}, heads: 2, groups: 1, size: 1 + i, n: n, rate: 4, step: 0.5, kept: graph.BF16}
			short := s.call(rng)
			copy(short.Args[5].U16[len(short.Args[5].U16)/2:], []uint16{0x7f80, 0xff80, 0x7fff, 1})
			long := copied(short, 5)
			state := table(graph.F32, short.Args[5].Dims[0], short.Args[5].Cols, short.Args[5].Stride, 0)
			state.Dims, state.F32 = short.Args[5].Dims, make([]float32, len(short.Args[5].U16))
			short.Args[5].Read(state.F32, 0)
			long.Args[5] = state
			runAll(kernel, short)
			runAll(kernel, long)
			kernels.Round(graph.BF16, state.F32)
			for slot := range 2 {
				if !equalBits(short.Results[0].Row(slot), long.Results[0].Row(slot)) || !sameState(&short.Args[5], &state, slot) {
					t.Errorf("rows of %d: sequence %d has other bits than with a state in f32", n, slot)
				}
			}
		}
	})
}

func equalBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func sameState(a, b *kernels.Tensor, slot int) bool {
	x, y := make([]float32, a.Cols), make([]float32, a.Cols)
	a.Read(x, slot*a.Stride)
	b.Read(y, slot*b.Stride)
	return equalBits(x, y)
}

// TestSSDAccuracy: over long prompts each instruction set is as near to float64 as the
// plain kernel.
func TestSSDAccuracy(t *testing.T) {
	for _, s := range []ssdCase{
		{rate: 1, step: 1e-3}, // nothing is forgotten
		{rate: 1, step: 0.1},
		{rate: 16, step: 0.5}, // all is, soon
	} {
		s.lengths, s.heads, s.groups, s.size, s.n, s.kept = []int{256}, 2, 1, 16, 128, graph.F32
		c := s.call(rand.New(rand.NewPCG(15, 0)))
		want := exact("ssd_scan", c, 5)
		off := func(k kernels.Kernel) (y, state float64) {
			got := copied(c, 5)
			k.Run(got, 0, k.Units(got))
			y, _ = distance(&got.Results[0], &want.Results[0])
			state, _ = distance(&got.Args[5], &want.Args[5])
			return y, state
		}
		y, state := off(Kernels["ssd_scan"])
		t.Logf("rate %g, step %g: plain is off by %.2g, its state by %.2g", s.rate, s.step, y, state)
		eachISA(t, "ssd_scan", func(t *testing.T, isa string, k kernels.Kernel) {
			a, b := off(k)
			t.Logf("%.2g and %.2g", a, b)
			if !(a <= y && b <= state) {
				t.Errorf("off by %.2g and the state by %.2g, the plain kernel by %.2g and %.2g", a, b, y, state)
			}
		})
	}
}

// TestSSDSpecial: where a number is not finite, or as large as can be, in any operand and
// at any token, results are numbers where the plain kernel's are. Of large numbers, the order of a
// sum decides whether it is infinite or none.
func TestSSDSpecial(t *testing.T) {
	inf := float32(math.Inf(1))
	eachISA(t, "ssd_scan", func(t *testing.T, isa string, kernel kernels.Kernel) {
		rng := rand.New(rand.NewPCG(16, 0))
		for _, size := range []int{3, 16} {
			for arg := range 6 {
				for _, v := range []float32{float32(math.NaN()), inf, -inf, math.MaxFloat32, 0x1p-149, 0} {
					for _, tokens := range []int{1, 5, 16, 29} {
						s := ssdCase{lengths: []int{tokens}, heads: 2, groups: 1, size: size, n: 5, kept: graph.F32, rate: 4, step: 0.5}
						c := s.call(rng)
						x := &c.Args[arg]
						if arg == 2 {
							v = -v // rates are not positive
						}
						x.F32[rng.IntN(len(x.F32))] = v
						plain, got := copied(c, 5), copied(c, 5)
						Kernels["ssd_scan"].Run(plain, 0, 2)
						kernel.Run(got, 0, 2)
						for what, pair := range map[string][2]*kernels.Tensor{"y": {&plain.Results[0], &got.Results[0]}, "state": {&plain.Args[5], &got.Args[5]}} {
							for i, want := range pair[0].F32 {
								g, overflown := pair[1].F32[i], v == math.MaxFloat32 || v == -math.MaxFloat32
								if !alike(g, want) && !(overflown && !finite(g) && !finite(want)) {
									t.Fatalf("size %d, %d tokens, %g in operand %d: %s %d is %g, the plain kernel's %g", size, tokens, v, arg, what, i, g, want)
								}
							}
						}
					}
				}
			}
		}
	})
}

func finite(v float32) bool { return alike(v, 0) }

// alike: both are not a number, the same infinity, or finite.
func alike(a, b float32) bool {
	kind := func(v float32) int {
		switch {
		case v != v:
			return 0
		case v > math.MaxFloat32:
			return 1
		case v < -math.MaxFloat32:
			return 2
		}
		return 3
	}
	return kind(a) == kind(b)
}
