package sim

import (
	"math"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

// TestRounding: numbers are rounded to the nearest of the format.
func TestRounding(t *testing.T) {
	prop.Check(t, func(r *rapid.T) {
		x := rapid.Float32Range(-60000, 60000).Draw(r, "x")
		for f, digits := range map[driver.Format]int{driver.TF32: 10, driver.BF16: 7, driver.F16: 10} {
			b, got := make([]byte, 4), []float32{0}
			store(f, b, []float32{x})
			load(f, b, got)
			if math.Abs(float64(x)) < 1e-4 {
				continue // too small for f16
			}
			_, exponent := math.Frexp(float64(x))
			if ulp := math.Ldexp(1, exponent-1-digits); math.Abs(float64(got[0]-x)) > ulp/2 {
				r.Errorf("%v becomes %v in %v, whose step is %v", x, got[0], f, ulp)
			}
		}
	})
	for _, x := range []float32{0, 1, -2, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
		for _, f := range []driver.Format{driver.F32, driver.TF32, driver.BF16, driver.F16} {
			b, got := make([]byte, 4), []float32{0}
			store(f, b, []float32{x})
			load(f, b, got)
			if got[0] != x && (x == x || got[0] == got[0]) {
				t.Errorf("%v becomes %v in %v", x, got[0], f)
			}
		}
	}
	if bf16(1+1.0/256) != 0x3f80 || bf16(1+3.0/256) != 0x3f82 {
		t.Error("bf16 does not round ties to even")
	}
}

// TestProducts: random sizes and formats, of whole numbers, which are exact.
func TestProducts(t *testing.T) {
	v := drivertest.Open(t, New(Options{}), 0)
	s := v.NewStream()
	h, err := v.GEMM()
	v.Must(err)
	v.Must(h.SetStream(s))
	defer h.Close()
	formats := [][2]driver.Format{{driver.F32, driver.F32}, {driver.TF32, driver.F32}, {driver.BF16, driver.F32}, {driver.BF16, driver.BF16}, {driver.F16, driver.F32}, {driver.F16, driver.F16}}
	prop.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(1, 6)
		m, n, k, pad := size.Draw(r, "m"), size.Draw(r, "n"), size.Draw(r, "k"), size.Draw(r, "pad")
		f := rapid.SampledFrom(formats).Draw(r, "formats")
		values := rapid.SliceOfN(rapid.IntRange(-3, 3), 200, 200).Draw(r, "values")
		matrix := func(rows, cols int, f driver.Format) ([]float32, driver.Ptr) {
			all := make([]float32, rows*(cols+pad))
			for i := range all {
				all[i] = float32(values[i])
			}
			values = values[rows*cols:]
			b := make([]byte, len(all)*f.Bytes())
			store(f, b, all)
			p, err := v.Alloc(int64(len(b)))
			v.Must(err)
			v.Must(s.CopyIn(p, b))
			return all, p
		}
		a, pa := matrix(m, k, f[0])
		b, pb := matrix(n, k, f[0])
		c, pc := matrix(m, n, f[1])
		call := &driver.GemmCall{M: m, N: n, K: k, A: pa, B: pb, C: pc, LDA: k + pad, LDB: k + pad, LDC: n + pad, In: f[0], Out: f[1], Accumulate: rapid.Bool().Draw(r, "accumulate")}
		v.Must(h.Gemm(call))
		out, got := make([]byte, len(c)*f[1].Bytes()), make([]float32, len(c))
		v.Must(s.CopyOut(out, pc))
		load(f[1], out, got)
		for i := range m {
			for j := range n {
				at := i*(n+pad) + j
				if !call.Accumulate {
					c[at] = 0
				}
				for l := range k {
					c[at] += a[i*(k+pad)+l] * b[j*(k+pad)+l]
				}
			}
		}
		for i := range c {
			if got[i] != c[i] {
				r.Fatalf("element %d is %v, want %v", i, got[i], c[i])
			}
		}
		for _, p := range []driver.Ptr{pa, pb, pc} {
			v.Must(v.Release(p))
		}
	})
}
