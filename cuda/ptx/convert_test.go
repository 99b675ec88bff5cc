package ptx

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// exactNumber is the exact number that bits of a type are; false for NaN and the
// infinities, of which the second result has the sign.
func exactNumber(ty typ, v uint64) (x *big.Float, inf int, ok bool) {
	x = new(big.Float).SetPrec(exactPrec)
	if ty.integer() {
		return x.SetInt(value(ty, v)), 0, true
	}
	f := formats[ty].value(v)
	switch {
	case f != f:
		return nil, 0, false
	case math.IsInf(f, 1):
		return nil, 1, false
	case math.IsInf(f, -1):
		return nil, -1, false
	}
	return x.SetFloat64(f), 0, true
}

// referenceConvert converts by exact numbers.
func referenceConvert(d, s typ, mode rounding, sat bool, v uint64) uint64 {
	x, inf, ok := exactNumber(s, v)
	if !d.integer() {
		f := formats[d]
		one := uint64(1<<(f.exp-1)-1) << f.man
		switch {
		case !ok && inf == 0 && sat:
			return 0
		case !ok && inf == 0:
			return f.nan
		case sat && (inf < 0 || ok && (x.Sign() <= 0)):
			return 0
		case sat && (inf > 0 || x.Cmp(big.NewFloat(1)) > 0):
			return one
		case !ok:
			return uint64(1<<f.exp-1)<<f.man | uint64((1-inf)/2)<<(f.exp+f.man)
		}
		return roundBig(f, x, mode)
	}
	width := d.bits()
	low, high := new(big.Int), new(big.Int).SetUint64(mask(width))
	if d.signed() {
		low.SetInt64(-1 << (width - 1))
		high.SetUint64(mask(width - 1))
	}
	switch {
	case !ok && inf == 0 && (s == tF64 || width == 64):
		return 1 << (width - 1)
	case !ok && inf == 0:
		return 0
	case inf > 0:
		return lowBits(high, width)
	case inf < 0:
		return lowBits(low, width)
	}
	n := roundInteger(x, mode)
	if !s.integer() || sat {
		if n.Cmp(low) < 0 {
			n = low
		} else if n.Cmp(high) > 0 {
			n = high
		}
	}
	return lowBits(n, width)
}

var integerTypes = []typ{tU8, tS8, tU16, tS16, tU32, tS32, tU64, tS64}

var floatTypes = []typ{tF16, tBF16, tF32, tF64}

func generatorOf(ty typ) draw {
	if ty.integer() {
		return integers(ty.bits())
	}
	return numbers(formats[ty])
}

func (ty typ) registerBits() int { return max(16, ty.bits()) }

// convertAll checks a conversion; 8-bit results are extended in 16 bits.
func convertAll(t *testing.T, modifiers string, d, s typ, mode rounding, sat bool) {
	t.Helper()
	o := operation{fmt.Sprintf("cvt%s.%s.%s %%z, %%x;", modifiers, d, s), d.registerBits(), s.registerBits(), 0, 0}
	o.check(t, generatorOf(s), nil, nil, func(x, _, _ uint64) uint64 {
		v := referenceConvert(d, s, mode, sat, x)
		if d == tS8 {
			v = uint64(sext(v, 8)) & 0xffff
		}
		return v
	})
}

func TestConvertIntegers(t *testing.T) {
	for _, d := range integerTypes {
		for _, s := range integerTypes {
			convertAll(t, "", d, s, roundEven, false)
			convertAll(t, ".sat", d, s, roundEven, true)
		}
	}
}

func TestConvertIntegerToFloat(t *testing.T) {
	for _, d := range floatTypes {
		for _, s := range integerTypes {
			for _, mode := range []string{"rn", "rz", "rm", "rp"} {
				convertAll(t, "."+mode, d, s, roundings[mode], false)
			}
		}
	}
}

func TestConvertFloatToInteger(t *testing.T) {
	for _, d := range integerTypes {
		for _, s := range floatTypes {
			for _, mode := range []string{"rni", "rzi", "rmi", "rpi"} {
				convertAll(t, "."+mode, d, s, roundings[mode], false)
			}
		}
	}
}

func TestConvertFloats(t *testing.T) {
	for _, d := range floatTypes {
		for _, s := range floatTypes {
			if formats[d].man >= formats[s].man && formats[d].exp >= formats[s].exp {
				if d != s {
					convertAll(t, "", d, s, roundEven, false)
				}
				continue
			}
			for _, mode := range []string{"rn", "rz", "rm", "rp"} {
				convertAll(t, "."+mode, d, s, roundings[mode], false)
			}
		}
	}
	convertAll(t, ".rn.sat", tF32, tF64, roundEven, true)
	g := numbers(formats[tF32])
	for mode, f := range map[string]func(float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil} {
		operation{"cvt." + mode + ".f32.f32 %z, %x;", 32, 32, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
			return bits32(float32(f(float64(float32of(x)))))
		})
	}
	operation{"cvt.rn.ftz.f32.f64 %z, %x;", 32, 64, 0, 0}.check(t, numbers(formats[tF64]), nil, nil, func(x, _, _ uint64) uint64 {
		return flush32(bits32(float32(math.Float64frombits(x))))
	})
	operation{"cvt.rna.tf32.f32 %z, %x;", 32, 32, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
		b := uint32(x)
		if b<<1 > 0xff000000 {
			return nan32 &^ 0x1fff
		}
		if b<<1 < 0xff000000 {
			b += 0x1000
		}
		return uint64(b &^ 0x1fff)
	})
	for _, ty := range []typ{tF16, tBF16} {
		operation{fmt.Sprintf("cvt.rn.%sx2.f32 %%z, %%x, %%y;", ty), 32, 32, 32, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
			return referenceConvert(ty, tF32, roundEven, false, x)<<16 | referenceConvert(ty, tF32, roundEven, false, y)
		})
		operation{fmt.Sprintf("cvt.rn.relu.%s.f32 %%z, %%x;", ty), 16, 32, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
			v := referenceConvert(ty, tF32, roundEven, false, x)
			if v>>15 != 0 {
				return 0
			}
			return v
		})
	}
}

// TestConvertWide: registers may be wider than the types.
func TestConvertWide(t *testing.T) {
	g := integers(64)
	operation{"cvt.s64.s8 %z, %x;", 64, 64, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 { return uint64(sext(x, 8)) })
	operation{"cvt.u32.u8 %z, %x;", 32, 64, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 { return x & 255 })
	operation{"cvt.s16.s64 %z, %x;", 64, 64, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 { return uint64(sext(x, 16)) })
	operation{"cvt.rzi.s16.f32 %z, %x;", 32, 32, 0, 0}.check(t, numbers(formats[tF32]), nil, nil, func(x, _, _ uint64) uint64 {
		return uint64(sext(referenceConvert(tS16, tF32, roundZero, false, x), 16)) & mask(32)
	})
}

// value is the number that v is in the format.
func (f format) value(v uint64) float64 {
	m, e := v&(1<<f.man-1), int(v>>f.man&(1<<f.exp-1))
	negative := v>>(f.exp+f.man)&1 != 0
	var x float64
	switch {
	case e == 1<<f.exp-1 && m != 0:
		return math.NaN()
	case e == 1<<f.exp-1:
		x = math.Inf(1)
	case e == 0:
		x = math.Ldexp(float64(m), 2-1<<(f.exp-1)-f.man)
	default:
		x = math.Ldexp(float64(m|1<<f.man), e+1-1<<(f.exp-1)-f.man)
	}
	if negative {
		return math.Copysign(x, -1)
	}
	return x
}
