package ptx

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// Kernels of testdata/kernels.cu against plain Go.

var architectures = []string{"sm_80", "sm_90"}

func eachArchitecture(t *testing.T, f func(t *testing.T, m *Module, r rig)) {
	for _, arch := range architectures {
		t.Run(arch, func(t *testing.T) { f(t, testdata(t, "kernels."+arch+".ptx"), newRig(t)) })
	}
}

func random(n int, scale float32) []float32 {
	g := rand.New(rand.NewPCG(1, uint64(n)))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(g.NormFloat64()) * scale
	}
	return v
}

func toBF16s(v []float32) []uint16 {
	b := make([]uint16, len(v))
	for i := range v {
		b[i] = uint16(toBF16(v[i]))
		v[i] = bfloat(uint64(b[i]))
	}
	return b
}

func near(t *testing.T, what string, got []float32, want func(i int) float64, tolerance float64) {
	t.Helper()
	for i, g := range got {
		if w := want(i); !(math.Abs(float64(g)-w) <= tolerance*(1+math.Abs(w))) {
			t.Fatalf("%s %d is %v, want %v", what, i, g, w)
		}
	}
}

func TestRMSNorm(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const rows, n = 3, 200
		x, w := random(rows*n, 1), random(n, 1)
		y := r.alloc(4 * rows * n)
		r.mustRun(entry(t, m, "rmsnorm"), rows, 96, y, r.put(x), r.put(w), int32(n), float32(1e-5))
		near(t, "y", r.floats(y, rows*n), func(i int) float64 {
			s := 0.0
			for _, v := range x[i/n*n : i/n*n+n] {
				s += float64(v) * float64(v)
			}
			return float64(x[i]) / math.Sqrt(s/n+1e-5) * float64(w[i%n])
		}, 1e-6)
	})
}

func TestGEMV(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const rows, k = 12, 328
		w, x := random(rows*k, 1), random(k, 1)
		b := toBF16s(w)
		y := r.alloc(4 * rows)
		r.mustRun(entry(t, m, "gemv"), rows/4, 128, y, r.put(b), r.put(x), int32(k))
		near(t, "y", r.floats(y, rows), func(i int) float64 {
			s := 0.0
			for j, v := range x {
				s += float64(v) * float64(w[i*k+j])
			}
			return s
		}, 1e-5)
	})
}

func TestScan(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const T, D, N = 9, 40, 16
		x, dt, a, b, c := random(T*D, 1), random(T*D, 1), random(D*N, 1), random(T*N, 1), random(T*N, 1)
		for i := range a {
			a[i] = -float32(math.Abs(float64(a[i])))
		}
		h := make([]float32, D*N)
		y, state := r.alloc(4*T*D), r.put(h)
		r.mustRun(entry(t, m, "scan16"), 2, 32, y, state, r.put(x), r.put(dt), r.put(a), r.put(b), r.put(c), int32(T), int32(D))
		want := make([]float64, T*D)
		final := make([]float64, D*N)
		for d := range D {
			for s := range T {
				delta := math.Log1p(math.Exp(float64(dt[s*D+d])))
				for n := range N {
					i := d*N + n
					final[i] = final[i]*math.Exp(delta*float64(a[i])) + delta*float64(b[s*N+n])*float64(x[s*D+d])
					want[s*D+d] += final[i] * float64(c[s*N+n])
				}
			}
		}
		near(t, "y", r.floats(y, T*D), func(i int) float64 { return want[i] }, 1e-5)
		near(t, "h", r.floats(state, D*N), func(i int) float64 { return final[i] }, 1e-5)
	})
}

func TestSoftmax(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const rows, n = 3, 70
		x := random(rows*n, 2)
		h := make([]uint16, len(x))
		for i := range x {
			h[i] = uint16(formats[tF16].round(float64(x[i]), roundEven))
			x[i] = half16(uint64(h[i]))
		}
		e := entry(t, m, "softmax")
		y := r.alloc(2 * rows * n)
		if err := r.launch(e, Launch{Grid: [3]int{rows, 1, 1}, Block: [3]int{32, 1, 1}, Shared: 4 * n, Params: params(t, e, y, r.put(h), int32(n))}); err != nil {
			t.Fatal(err)
		}
		out := make([]uint16, rows*n)
		r.get(y, out)
		got := make([]float32, len(out))
		for i := range out {
			got[i] = bfloat(uint64(out[i]))
		}
		near(t, "y", got, func(i int) float64 {
			s := 0.0
			for _, v := range x[i/n*n : i/n*n+n] {
				s += math.Exp(float64(v))
			}
			return math.Exp(float64(x[i])) / s
		}, 2e-3)
	})
}

func TestMatmul(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const M, N, K = 32, 24, 48
		a, b := random(M*K, 1), random(N*K, 1)
		pa, pb := r.put(toBF16s(a)), r.put(toBF16s(b))
		e := entry(t, m, "matmul")
		c := r.alloc(4 * M * N)
		if err := r.launch(e, Launch{Grid: [3]int{M / 16, N / 8, 1}, Block: [3]int{32, 1, 1}, Params: params(t, e, c, pa, pb, int32(N), int32(K))}); err != nil {
			t.Fatal(err)
		}
		near(t, "c", r.floats(c, M*N), func(i int) float64 {
			s := 0.0
			for k := range K {
				s += float64(a[i/N*K+k]) * float64(b[i%N*K+k])
			}
			return s
		}, 1e-6)
	})
}

func TestAttention(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const heads, T, D = 2, 21, 64
		q, k, v := random(heads*D, 1), random(T*D, 1), random(T*D, 2)
		e := entry(t, m, "attend")
		y := r.alloc(4 * heads * D)
		if err := r.launch(e, Launch{Grid: [3]int{heads, 1, 1}, Block: [3]int{128, 1, 1}, Shared: 4 * D,
			Params: params(t, e, y, r.put(q), r.put(toBF16s(k)), r.put(toBF16s(v)), int32(T), int32(D))}); err != nil {
			t.Fatal(err)
		}
		near(t, "y", r.floats(y, heads*D), func(i int) float64 {
			sum, o := 0.0, 0.0
			for s := range T {
				dot := 0.0
				for d := range D {
					dot += float64(q[i/D*D+d]) * float64(k[s*D+d])
				}
				p := math.Exp(dot / 8)
				sum += p
				o += p * float64(v[s*D+i%D])
			}
			return o / sum
		}, 1e-5)
	})
}

// TestTotal runs a reduction over blocks with a fence, in several orders of
// the blocks, twice in the same memory.
func TestTotal(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const n, blocks = 5000, 7
		x := random(n, 1)
		want := 0.0
		for _, v := range x {
			want += float64(v)
		}
		e := entry(t, m, "total")
		in := r.put(x)
		for seed := range uint64(4) {
			out, part := r.alloc(4), r.alloc(4*blocks)
			err := r.launch(e, Launch{Grid: [3]int{blocks, 1, 1}, Block: [3]int{128, 1, 1}, Params: params(t, e, out, part, in, int32(n)), Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "total", r.floats(out, 1), func(int) float64 { return want }, 1e-4)
		}
	})
}

func TestByValue(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		x := random(32, 1)
		type shape struct {
			X     uint64
			N     int32
			Scale [5]float32
		}
		s := shape{X: r.put(x), N: 20, Scale: [5]float32{2, 3, 4, 5, 6}}
		y := r.alloc(4 * 20)
		e := entry(t, m, "byvalue")
		r.mustRun(e, 1, 32, y, s, uint8(1))
		near(t, "scaled", r.floats(y, 20), func(i int) float64 { return float64(x[i]*s.Scale[i%5]) + float64(7+i%3) }, 1e-6)
		r.mustRun(e, 1, 32, y, s, uint8(0))
		near(t, "plain", r.floats(y, 20), func(i int) float64 { return float64(s.Scale[i%4]) + float64(1+i%4) }, 0)
	})
}

func TestCalls(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		x := random(48, 1)
		y := r.put(x)
		r.mustRun(entry(t, m, "calls"), 1, 48, y, int32(3))
		near(t, "y", r.floats(y, 48), func(i int) float64 {
			v := float64(x[i])
			if i%2 == 1 {
				v = v * v * v
			}
			return v * v
		}, 1e-5)
	})
}

func TestLocalMemory(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		x := random(64, 1)
		y := r.alloc(4 * 40)
		r.mustRun(entry(t, m, "local"), 1, 40, y, r.put(x), int32(30), int32(7))
		near(t, "y", r.floats(y, 40), func(thread int) float64 {
			var a [64]float32
			for i := range a {
				a[i] = x[i] * float32(thread)
			}
			for i := range 30 {
				a[i*7&63] += a[i*5&63]
			}
			s := float32(0)
			for i := range a {
				s += a[i] * float32(i)
			}
			return float64(s)
		}, 1e-4)
	})
}

func TestChoose(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const n = 1234
		want := []int32{11 * n, n / 3, n%5 - 2, n << 4, int32(bits.OnesCount(n)), n * n, int32(bits.LeadingZeros32(n)), -n}
		in := make([]int32, 32)
		for i := range in {
			in[i] = int32(i*5) % 8
		}
		y := r.put(in)
		e := entry(t, m, "choose")
		r.mustRun(e, 1, 32, y, int32(n))
		out := make([]int32, 32)
		r.get(y, out)
		for i, v := range out {
			if v != want[in[i]] {
				t.Errorf("%d becomes %d, want %d", in[i], v, want[in[i]])
			}
		}
		var f *Fault
		if err := r.run(e, 1, 32, y, int32(n)); !errors.As(err, &f) || f.Kind != Trap {
			t.Errorf("got %v, want a trap", err)
		}
	})
}

func TestCollatz(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		const n = 150
		y := r.alloc(4 * n)
		r.mustRun(entry(t, m, "collatz"), 3, 64, y, int32(n))
		out := make([]int32, n)
		r.get(y, out)
		for i, got := range out {
			want := int32(0)
			for v := i + 1; v != 1; want++ {
				if v%2 == 1 {
					v = 3*v + 1
				} else {
					v /= 2
				}
			}
			if got != want {
				t.Errorf("%d takes %d steps, want %d", i+1, got, want)
			}
		}
	})
}

func TestVotes(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		x := make([]int32, 64)
		for i := range x {
			x[i] = int32(i*i%7 + i/32)
		}
		y := r.alloc(4 * 64)
		r.mustRun(entry(t, m, "votes"), 1, 64, y, r.put(x))
		out := make([]int32, 64)
		r.get(y, out)
		for i, got := range out {
			warp := x[i/32*32 : i/32*32+32]
			want, three := int32(0), int32(0)
			for j, v := range warp {
				if v == x[i] {
					want++
				}
				if v == 3 && j >= 16 {
					three = 1
				}
			}
			if i%32 < 16 {
				want += 100 * warp[3]
			} else {
				want -= 1000 * three
			}
			if got != want {
				t.Errorf("thread %d has %d, want %d", i, got, want)
			}
		}
	})
}

func TestCount(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		for _, first := range []int32{0, 5} {
			x := make([]int32, 70)
			for i := range x {
				x[i] = first * int32(i%3)
			}
			y := r.alloc(4 * 70)
			r.mustRun(entry(t, m, "count"), 1, 70, y, r.put(x))
			out := make([]int32, 70)
			r.get(y, out)
			want := int32(0)
			if first != 0 {
				want = 46*4 + 1
			}
			for i, got := range out {
				if got != want {
					t.Errorf("thread %d has %d, want %d", i, got, want)
				}
			}
		}
	})
}

func TestWide(t *testing.T) {
	eachArchitecture(t, func(t *testing.T, m *Module, r rig) {
		g := rand.New(rand.NewPCG(3, 3))
		const n = 32
		a, b := make([]uint64, 2*n), make([]uint64, 2*n)
		for i := range a {
			a[i], b[i] = g.Uint64(), g.Uint64()
			if i%3 == 0 {
				a[i] = math.MaxUint64
			}
		}
		d := make([]float64, n)
		h := make([]uint16, n)
		for i := range d {
			d[i] = g.Float64() * 100
			h[i] = uint16(0x3c00 + i)
		}
		q, pd, ph := r.alloc(8*6*n), r.put(d), r.put(h)
		r.mustRun(entry(t, m, "wide"), 1, n, q, r.put(a), r.put(b), pd, ph)
		out := r.words(q, 6*n)
		gotD := make([]float64, n)
		r.get(pd, gotD)
		gotH := make([]uint16, n)
		r.get(ph, gotH)
		for i := range n {
			a0, a1, b0, b1 := a[2*i], a[2*i+1], b[2*i], b[2*i+1]
			s0, carry := bits.Add64(a0, b0, 0)
			s1, _ := bits.Add64(a1, b1, carry)
			m0, borrow := bits.Sub64(a0, b0, 0)
			m1, _ := bits.Sub64(a1, b1, borrow)
			p1, p0 := bits.Mul64(a0, b0)
			p1 += a0*b1 + a1*b0
			for j, want := range []uint64{s0, s1, m0, m1, p0, p1} {
				if out[6*i+j] != want {
					t.Errorf("number %d of thread %d is %#x, want %#x", j, i, out[6*i+j], want)
				}
			}
			if want := math.Sqrt(d[i])/3 + math.Floor(d[i]) + float64(a0) + float64(int32(d[i])); gotD[i] != want {
				t.Errorf("d of thread %d is %v, want %v", i, gotD[i], want)
			}
			x := float64(half16(uint64(h[i])))
			if want := formats[tF16].round(x*x+x, roundEven); uint64(gotH[i]) != want {
				t.Errorf("h of thread %d is %#x, want %#x", i, gotH[i], want)
			}
		}
	})
}
