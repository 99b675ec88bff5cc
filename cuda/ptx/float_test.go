package ptx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func flush32(v uint64) uint64 { return uint64(math.Float32bits(flush(float32of(v)))) }

func TestFloatArithmetic(t *testing.T) {
	for _, ty := range []typ{tF32, tF64} {
		f, width := formats[ty], ty.bits()
		g := numbers(f)
		for op, n := range arity {
			for _, mode := range []string{"rn", "rz", "rm", "rp"} {
				text := fmt.Sprintf("%s.%s.%s %%z%s;", op, mode, ty, strings.Join([]string{", %x", ", %y", ", %w"}[:n], ""))
				operation{text, width, width, width, width}.check(t, g, g, g, func(x, y, w uint64) uint64 {
					return referenceFloat(op, f, roundings[mode], x, y, w)
				})
				if ty != tF32 || mode != "rn" {
					continue
				}
				text = strings.Replace(text, ".rn", ".rn.ftz", 1)
				operation{text, width, width, width, width}.check(t, g, g, g, func(x, y, w uint64) uint64 {
					return flush32(referenceFloat(op, f, roundEven, flush32(x), flush32(y), flush32(w)))
				})
			}
		}
		for _, op := range []string{"add", "sub", "mul"} { // without a rounding mode
			operation{op + "." + ty.String() + " %z, %x, %y;", width, width, width, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
				return referenceFloat(op, f, roundEven, x, y, 0)
			})
		}
	}
	g := numbers(formats[tF32])
	operation{"fma.rn.sat.f32 %z, %x, %y, %w;", 32, 32, 32, 32}.check(t, g, g, g, func(x, y, w uint64) uint64 {
		return saturated(referenceFloat("fma", formats[tF32], roundEven, x, y, w))
	})
	operation{"add.sat.f32 %z, %x, %y;", 32, 32, 32, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
		return saturated(referenceFloat("add", formats[tF32], roundEven, x, y, 0))
	})
}

func saturated(v uint64) uint64 {
	switch x := float32of(v); {
	case x >= 1:
		return f32bits(1)
	case x > 0:
		return v
	}
	return 0
}

func TestHalfArithmetic(t *testing.T) {
	for _, ty := range []typ{tF16, tBF16} {
		f := formats[ty]
		g := numbers(f)
		two := pair(g)
		for op, text := range map[string]string{
			"add": "add.rn.%s %%z, %%x, %%y;", "sub": "sub.rn.%s %%z, %%x, %%y;", "mul": "mul.rn.%s %%z, %%x, %%y;",
			"fma": "fma.rn.%s %%z, %%x, %%y, %%w;",
		} {
			want := func(x, y, w uint64) uint64 { return referenceFloat(op, f, roundEven, x, y, w) }
			operation{fmt.Sprintf(text, ty), 16, 16, 16, 16}.check(t, g, g, g, want)
			operation{fmt.Sprintf(text, ty.String()+"x2"), 32, 32, 32, 32}.check(t, two, two, two, func(x, y, w uint64) uint64 {
				return want(x&0xffff, y&0xffff, w&0xffff) | want(x>>16, y>>16, w>>16)<<16
			})
		}
		operation{fmt.Sprintf("fma.rn.relu.%s %%z, %%x, %%y, %%w;", ty), 16, 16, 16, 16}.check(t, g, g, g, func(x, y, w uint64) uint64 {
			v := referenceFloat("fma", f, roundEven, x, y, w)
			if v>>15 != 0 && v != f.nan {
				return 0
			}
			return v
		})
		operation{fmt.Sprintf("neg.%sx2 %%z, %%x;", ty), 32, 32, 0, 0}.check(t, two, nil, nil, func(x, _, _ uint64) uint64 { return x ^ 0x80008000 })
		operation{fmt.Sprintf("abs.%s %%z, %%x;", ty), 16, 16, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 { return x & 0x7fff })
		operation{fmt.Sprintf("max.%sx2 %%z, %%x, %%y;", ty), 32, 32, 32, 0}.check(t, two, two, nil, func(x, y, _ uint64) uint64 {
			return referenceMinMax(f, x&0xffff, y&0xffff, true, false) | referenceMinMax(f, x>>16, y>>16, true, false)<<16
		})
	}
	one := operation{"add.f16 %z, %x, %y;", 16, 16, 16, 0}
	if got := one.run(t, [][3]uint64{{0x3c00, 0x1000, 0}, {0x7bff, 0x7bff, 0}, {1, 1, 0}}); got[0] != 0x3c00 || got[1] != 0x7c00 || got[2] != 2 {
		t.Errorf("got %#x", got)
	}
}

// referenceMinMax orders bits: -0 is less than +0, and a NaN loses.
func referenceMinMax(f format, x, y uint64, most, nan bool) uint64 {
	sign := uint64(1) << (f.exp + f.man)
	inf := uint64(1<<f.exp-1) << f.man
	isNaN := func(v uint64) bool { return v&^sign > inf }
	switch {
	case isNaN(x) && isNaN(y), nan && (isNaN(x) || isNaN(y)):
		return f.nan
	case isNaN(x):
		return y
	case isNaN(y):
		return x
	}
	order := func(v uint64) int64 {
		if v&sign != 0 {
			return -int64(v&^sign) - 1
		}
		return int64(v)
	}
	if (order(x) > order(y)) == most {
		return x
	}
	return y
}

func TestFloatMinMax(t *testing.T) {
	for _, ty := range []typ{tF32, tF64} {
		f, width := formats[ty], ty.bits()
		g := numbers(f)
		for op, most := range map[string]bool{"min": false, "max": true} {
			operation{fmt.Sprintf("%s.%s %%z, %%x, %%y;", op, ty), width, width, width, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
				return referenceMinMax(f, x, y, most, false)
			})
		}
	}
	g := numbers(formats[tF32])
	operation{"max.NaN.f32 %z, %x, %y;", 32, 32, 32, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
		return referenceMinMax(formats[tF32], x, y, true, true)
	})
	operation{"min.ftz.f32 %z, %x, %y;", 32, 32, 32, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
		return referenceMinMax(formats[tF32], flush32(x), flush32(y), false, false)
	})
	operation{"copysign.f32 %z, %x, %y;", 32, 32, 32, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 { return x&(1<<31) | y&^(1<<31) })
	operation{"neg.f32 %z, %x;", 32, 32, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 { return x ^ 1<<31 })
	operation{"abs.f64 %z, %x;", 64, 64, 0, 0}.check(t, numbers(formats[tF64]), nil, nil, func(x, _, _ uint64) uint64 { return x &^ (1 << 63) })
	operation{"abs.ftz.f32 %z, %x;", 32, 32, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 { return flush32(x &^ (1 << 31)) })
}

// TestApproximations: those are float64's result, rounded once; with .ftz,
// subnormals become zeros on both sides.
func TestApproximations(t *testing.T) {
	g := numbers(formats[tF32])
	for text, f := range map[string]func(x, y float64) float64{
		"ex2.approx%s.f32 %%z, %%x;":      func(x, _ float64) float64 { return math.Exp2(x) },
		"lg2.approx%s.f32 %%z, %%x;":      func(x, _ float64) float64 { return math.Log2(x) },
		"rsqrt.approx%s.f32 %%z, %%x;":    func(x, _ float64) float64 { return 1 / math.Sqrt(x) },
		"sqrt.approx%s.f32 %%z, %%x;":     func(x, _ float64) float64 { return math.Sqrt(x) },
		"rcp.approx%s.f32 %%z, %%x;":      func(x, _ float64) float64 { return 1 / x },
		"div.approx%s.f32 %%z, %%x, %%y;": func(x, y float64) float64 { return x / y },
		"div.full%s.f32 %%z, %%x, %%y;":   func(x, y float64) float64 { return x / y },
		"sin.approx%s.f32 %%z, %%x;":      func(x, _ float64) float64 { return math.Sin(x) },
		"cos.approx%s.f32 %%z, %%x;":      func(x, _ float64) float64 { return math.Cos(x) },
		"tanh.approx%s.f32 %%z, %%x;":     func(x, _ float64) float64 { return math.Tanh(x) },
	} {
		for _, ftz := range []string{"", ".ftz"} {
			if ftz != "" && strings.HasPrefix(text, "tanh") {
				continue
			}
			operation{fmt.Sprintf(text, ftz), 1, 32, 32, 0}.checkNear(t, g, ftz != "", f)
		}
	}
	one := f32bits(1)
	for text, want := range map[string]uint64{
		"ex2.approx.ftz.f32 %z, %x;": 0, "ex2.approx.f32 %z, %x;": 1 << 13,
	} {
		if got := (operation{text, 32, 32, 0, 0}).run(t, [][3]uint64{{f32bits(-136)}, {f32bits(0)}}); got[0] != want || got[1] != one {
			t.Errorf("%s: got %#x", text, got)
		}
	}
	got := operation{"rcp.approx.ftz.f32 %z, %x;", 32, 32, 0, 0}.run(t, [][3]uint64{{1}, {f32bits(0x1p127)}, {1<<31 | 1}})
	if got[0] != 0x7f800000 || got[1] != 0 || got[2] != 0xff800000 {
		t.Errorf("rcp.approx.ftz: got %#x", got)
	}
}

// checkNear lets the last bit differ: that of a reference that rounds twice.
func (o operation) checkNear(t *testing.T, g draw, ftz bool, f func(x, y float64) float64) {
	o.z = 32
	t.Run(o.text, func(t *testing.T) {
		m, err := Parse(o.text, o.kernel())
		if err != nil {
			t.Fatal(err)
		}
		e := entry(t, m, "k")
		seeds(t, func(t *testing.T, random *rand.Rand) {
			var operands [32][3]uint64
			for i := range operands {
				operands[i][0], operands[i][1] = g(random), g(random)
			}
			got := rig{nil, sharedMemory}.evaluate(e, operands[:])
			for i, v := range operands {
				x, y := float32of(v[0]), float32of(v[1])
				if ftz {
					x, y = flush(x), flush(y)
				}
				want := float32(f(float64(x), float64(y)))
				if ftz {
					want = flush(want)
				}
				w := bits32(want)
				if got[i] != w && got[i]+1 != w && got[i]-1 != w {
					t.Fatalf("of %v, %v: got %v, want %v", x, y, float32of(got[i]), want)
				}
			}
		})
	})
}

// TestFMARounding has cases in which rounding to float64 first goes wrong.
func TestFMARounding(t *testing.T) {
	a, b := float32(1+0x1p-12), float32(1+0x1p-12) // 1 + 2^-11 + 2^-24, a tie
	cases := [][3]uint64{
		{f32bits(a), f32bits(b), f32bits(0)},
		{f32bits(a), f32bits(b), f32bits(0x1p-80)},
		{f32bits(a), f32bits(b), f32bits(-0x1p-80)},
		{f32bits(0x1p-75), f32bits(0x1p-75), f32bits(0x1p-149)},
		{f32bits(-0x1p-75), f32bits(0x1p-75), f32bits(0x1.8p-148)},
	}
	want := []float32{1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-23, 1 + 0x1p-11, 0x1p-148, 0x1p-148}
	for i, got := range (operation{"fma.rn.f32 %z, %x, %y, %w;", 32, 32, 32, 32}).run(t, cases) {
		if float32of(got) != want[i] {
			t.Errorf("case %d: got %x, want %x", i, float32of(got), want[i])
		}
	}
}
