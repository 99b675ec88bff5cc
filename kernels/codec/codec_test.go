package codec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// codecs are all of them, with small and large blocks.
func codecs() (list []graph.Codec) {
	for _, k := range graph.CodecKinds() {
		for _, block := range []int{graph.MinBlock, graph.DefaultBlock, 128} {
			list = append(list, graph.Codec{Kind: k, Block: block})
		}
	}
	return list
}

// vectors calls visit with n vectors of some kinds and lengths.
func vectors(n int, visit func(kind string, x []float32)) {
	r := rand.New(rand.NewPCG(20, 1))
	lengths := []int{1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129}
	for i := range n {
		x := make([]float32, lengths[r.IntN(len(lengths))])
		kind := []string{"random", "constant", "denormal", "huge", "one outlier", "exponents"}[i%6]
		size := float32(math.Ldexp(1, r.IntN(60)-30))
		at := r.IntN(len(x))
		constant := float32(r.NormFloat64()) * size
		for j := range x {
			v := float32(r.NormFloat64())
			switch kind {
			case "random":
				x[j] = v * size
			case "constant":
				x[j] = constant
			case "denormal":
				x[j] = math.Float32frombits(r.Uint32()&0x807fffff) * float32(r.IntN(2))
			case "huge":
				x[j] = math.MaxFloat32 * (2*r.Float32() - 1)
				if j == at {
					x[j] = math.MaxFloat32
				}
			case "one outlier":
				if x[j] = v; j == at {
					x[j] *= 1e6
				}
			case "exponents":
				x[j] = math.Float32frombits(r.Uint32())
				if x[j]-x[j] != 0 {
					x[j] = 0
				}
			}
		}
		visit(kind, x)
	}
}

// TestRoundTrip: 100,000 vectors of each codec come back within the bound of their
// blocks' largest magnitudes, and finite.
func TestRoundTrip(t *testing.T) {
	for _, c := range codecs() {
		n := 100_000
		if c.Block != graph.DefaultBlock {
			n = 6000
		} else if testing.Short() {
			n /= 10
		}
		vectors(n, func(kind string, x []float32) {
			row, back := make([]byte, c.RowBytes(len(x))), make([]float32, len(x))
			Encode(c, row, x)
			Decode(c, back, row)
			bounds := make([]float64, len(x))
			AddBounds(c, bounds, x)
			for i, bound := range bounds {
				if far := math.Abs(float64(back[i]) - float64(x[i])); !(far <= bound) {
					t.Fatalf("%s, %s: %g, element %d of %v, comes back as %g; the bound is %g", c, kind, x[i], i, x, back[i], bound)
				}
			}
		})
	}
}

// nearest is the code whose value is nearest to x, by trying all: of two, the even one.
func nearest(f *fp8, x float64) byte {
	best, far := byte(0), math.Inf(1)
	for code := range f.top + 1 {
		if d := math.Abs(math.Abs(x) - float64(f.values[code])); d < far || d == far && code%2 == 0 {
			best, far = code, d
		}
	}
	if math.Signbit(x) {
		best |= 0x80
	}
	return best
}

// TestFP8Rounds: to the nearest of all codes, at every border between two and beside it.
func TestFP8Rounds(t *testing.T) {
	for kind, f := range small {
		for code := range int(f.top) {
			mid := float32((float64(f.values[code]) + float64(f.values[code+1])) / 2)
			for _, x := range []float32{f.values[code], math.Nextafter32(mid, 0), mid, math.Nextafter32(mid, math.MaxFloat32)} {
				for _, x := range []float32{x, -x} {
					if got, want := f.round(x), nearest(f, float64(x)); got != want {
						t.Errorf("%s: %g is %#x, want %#x", kind, x, got, want)
					}
				}
			}
		}
		for _, x := range []float32{f.largest, 2 * f.largest, math.MaxFloat32} {
			if f.round(x) != f.top || f.round(-x) != f.top|0x80 {
				t.Errorf("%s: %g is %#x and %#x, want the largest", kind, x, f.round(x), f.round(-x))
			}
		}
	}
}

// TestFP8Values holds the tables against the OCP 8-bit floating point specification 1.0, section 5:
// an E4M3 of no infinity, whose S.1111.111 is the only NaN, and E5M2 as IEEE 754 would have it.
func TestFP8Values(t *testing.T) {
	e4m3, e5m2 := small[graph.E4M3].values, small[graph.E5M2].values
	for i := range 256 {
		var half float32
		if b := uint32(i&0x7f) << 8; b >= 0x7c00 { // e5m2 is f16 without its lower byte
			half = math.Float32frombits(0x7f800000 | b&0x3ff<<13)
		} else {
			half = math.Float32frombits(b<<13) * 0x1p112
		}
		if i > 127 {
			half = -half
		}
		if e5m2[i] != half && !(e5m2[i] != e5m2[i] && half != half) {
			t.Errorf("e5m2 %#02x is %g, want %g", i, e5m2[i], half)
		}
		s, e, m := i>>7, i>>3&15, i&7
		want := math.Pow(-1, float64(s)) * math.Pow(2, float64(e)-7) * (1 + float64(m)/8)
		if e == 0 {
			want = math.Pow(-1, float64(s)) * math.Pow(2, -6) * float64(m) / 8
		}
		if nan := e == 15 && m == 7; nan && e4m3[i] == e4m3[i] || !nan && float64(e4m3[i]) != want {
			t.Errorf("e4m3 %#02x is %g, want %g", i, e4m3[i], want)
		}
	}
	for _, c := range []struct {
		of   [256]float32
		code int
		want float32
	}{
		{e4m3, 0x7e, 448}, {e4m3, 0x01, 0x1p-9}, {e4m3, 0x07, 0.875 * 0x1p-6}, {e4m3, 0x08, 0x1p-6}, {e4m3, 0xfe, -448},
		{e5m2, 0x7b, 57344}, {e5m2, 0x01, 0x1p-16}, {e5m2, 0x03, 0.75 * 0x1p-14}, {e5m2, 0x04, 0x1p-14}, {e5m2, 0x7c, float32(math.Inf(1))}, {e5m2, 0xfc, float32(math.Inf(-1))},
	} {
		if c.of[c.code] != c.want {
			t.Errorf("%#02x is %g, want %g", c.code, c.of[c.code], c.want)
		}
	}
}

// TestNotFinite: a number that is not finite makes its block NaN, and no other.
func TestNotFinite(t *testing.T) {
	for _, c := range codecs() {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x := make([]float32, 3*c.Block-1)
			for i := range x {
				x[i] = float32(i)
			}
			x[c.Block+5] = float32(bad)
			Round(c, x)
			for i, v := range x {
				if nan := v != v; nan != (i/c.Block == 1) {
					t.Errorf("%s, %g in block 1: element %d is %g", c, bad, i, v)
				}
			}
		}
	}
}

// TestRoundTo: a format has the roundings of its numbers, and what does not travel is refused.
func TestRoundTo(t *testing.T) {
	const third = float32(1) / 3
	for d, want := range map[graph.DType]float32{
		graph.F32: third, graph.F16: 0x555p-12, graph.BF16: 0xabp-9,
		graph.Codec{Kind: graph.E5M2, Block: 16}.DType(): third,
	} {
		row := []float32{third, 0}
		if err := RoundTo(d, row); err != nil || d.Float() && row[0] != want || row[1] != 0 {
			t.Errorf("%s: %v, %v, want %g", d, row, err, want)
		}
		if c, ok := d.Codec(); ok && math.Abs(float64(row[0]-want)) > Bound(c, float64(third)) {
			t.Errorf("%s: %v, want about %g", d, row, want)
		}
	}
	if err := RoundTo(graph.Q8, []float32{third}); err == nil {
		t.Error("a row goes to q8")
	}
}

// TestRowBytes: blocks are counted as the formula says, tails as whole ones, and nothing
// is written past them.
func TestRowBytes(t *testing.T) {
	for _, c := range codecs() {
		for n := range 3*c.Block + 2 {
			want := (n + c.Block - 1) / c.Block * (c.Block*c.Bits()/8 + 2)
			if got := c.RowBytes(n); got != want {
				t.Errorf("%s: %d elements take %d bytes, want %d", c, n, got, want)
			}
			row := make([]byte, want+1)
			row[want] = 0xa5
			Encode(c, row, make([]float32, n))
			if row[want] != 0xa5 {
				t.Errorf("%s: %d elements are written past %d bytes", c, n, want)
			}
		}
	}
}

// TestScaled16IsExact: what f16 holds comes back as it was, and what is beyond its range in
// as many digits.
func TestScaled16IsExact(t *testing.T) {
	c := graph.Codec{Kind: graph.Scaled16, Block: graph.MinBlock}
	x := []float32{1, -2.5, 65504, 3.0 / 1024, 1e-3 * 0}
	for _, by := range []float32{1, 0x1p-40, 0x1p60} {
		y := make([]float32, len(x))
		for i := range x {
			y[i] = x[i] * by
		}
		Round(c, y)
		for i := range x {
			if y[i] != x[i]*by {
				t.Errorf("%g comes back as %g", x[i]*by, y[i])
			}
		}
	}
}
