package ptx

import (
	"math"
	"math/big"
	"math/bits"
)

// rounding is a PTX rounding mode.
type rounding uint8

const (
	roundEven rounding = iota // .rn
	roundZero                 // .rz
	roundDown                 // .rm
	roundUp                   // .rp
	roundAway                 // .rna: to nearest, ties away from zero
)

var roundings = map[string]rounding{
	"rn": roundEven, "rz": roundZero, "rm": roundDown, "rp": roundUp, "rna": roundAway,
	"rni": roundEven, "rzi": roundZero, "rmi": roundDown, "rpi": roundUp,
}

// The NaNs that arithmetic gives: PTX has one for each type.
const (
	nan16 = 0x7fff
	nan32 = 0x7fffffff
	nan64 = 0x7ff8000000000000
)

// A format is a binary floating-point format as IEEE 754 lays them out.
type format struct {
	exp, man int // bits of the exponent and of the mantissa
	nan      uint64
}

var formats = [...]format{
	tF16: {5, 10, nan16}, tBF16: {8, 7, nan16}, tF16x2: {5, 10, nan16}, tBF16x2: {8, 7, nan16},
	tTF32: {8, 10, nan32 >> 13}, tF32: {8, 23, nan32}, tF64: {11, 52, nan64},
}

// pack rounds m·2^e, with the sign.
func (f format) pack(negative bool, m uint64, e int, mode rounding) uint64 {
	sign := uint64(0)
	if negative {
		sign = 1 << (f.exp + f.man)
	}
	if m == 0 {
		return sign
	}
	lowest := 2 - 1<<(f.exp-1) - f.man // the exponent of a subnormal's last bit
	unit := max(e+bits.Len64(m)-1-f.man, lowest)
	var q uint64
	if shift := unit - e; shift <= 0 {
		q = m << -shift
	} else {
		q = roundShift(negative, m, uint(shift), mode)
	}
	// The mantissa's upper bit, or a carry, adds to the exponent as it should.
	v := uint64(unit-lowest)<<f.man + q
	if inf := uint64(1<<f.exp-1) << f.man; v >= inf {
		v = inf
		if mode == roundZero || mode == roundDown && !negative || mode == roundUp && negative {
			v--
		}
	}
	return sign | v
}

// roundShift is m/2^shift, rounded.
func roundShift(negative bool, m uint64, shift uint, mode rounding) uint64 {
	var q, rest, half uint64
	if shift < 64 {
		q, rest, half = m>>shift, m&(1<<shift-1), 1<<(shift-1)
	} else if rest = m; shift == 64 {
		half = 1 << 63
	} else {
		half = math.MaxUint64 // never reached, m being at most that only if it is odd
		rest = min(m, half-1)
	}
	up := false
	switch mode {
	case roundEven:
		up = rest > half || rest == half && q&1 != 0
	case roundAway:
		up = rest >= half
	case roundDown:
		up = negative && rest != 0
	case roundUp:
		up = !negative && rest != 0
	}
	if up {
		q++
	}
	return q
}

// round rounds x to the format.
func (f format) round(x float64, mode rounding) uint64 {
	b := math.Float64bits(x)
	m, e := b&(1<<52-1), int(b>>52&0x7ff)
	switch e {
	case 0x7ff:
		if m != 0 {
			return f.nan
		}
		return b>>63<<(f.exp+f.man) | uint64(1<<f.exp-1)<<f.man
	case 0:
		e = 1
	default:
		m |= 1 << 52
	}
	return f.pack(b>>63 != 0, m, e-1075, mode)
}

// sumToOdd is p+c, with the last bit set if it is not exact: what rounds in
// this way first can be rounded again to fewer bits without harm.
func sumToOdd(p, c float64) float64 {
	s := p + c
	t := s - p
	e := (p - (s - t)) + (c - t) // the exact error (Knuth's TwoSum)
	b := math.Float64bits(s)
	if e == 0 || e != e || b&1 != 0 || math.IsInf(s, 0) {
		return s
	}
	if e > 0 == (s > 0) {
		return math.Float64frombits(b + 1)
	}
	return math.Float64frombits(b - 1)
}

// fma32 is a·b+c with one rounding to f32. The product is exact in float64;
// the sum is not, and rounding it twice goes wrong only where the first
// rounding ends on a tie of the second, or where the result is subnormal.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	if onTie32(s) {
		s = sumToOdd(p, float64(c))
	}
	return float32(s)
}

// onTie32 reports whether s may lie in the middle between two f32.
func onTie32(s float64) bool {
	const least = 0x3810000000000000 // 2⁻¹²⁶
	b := math.Float64bits(s)
	return b&(1<<29-1) == 1<<28 || b<<1-1 < least<<1-1
}

// bits32 is a result as a register holds it.
func bits32(x float32) uint64 {
	if x != x {
		return nan32
	}
	return uint64(math.Float32bits(x))
}

func bits64(x float64) uint64 {
	if x != x {
		return nan64
	}
	return math.Float64bits(x)
}

func float32of(v uint64) float32 { return math.Float32frombits(uint32(v)) }

// flush is .ftz: a subnormal number becomes a zero of its sign.
func flush(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return x
}

// saturate is .sat: into [0, 1], NaN to 0.
func saturate[T float32 | float64](x T) T {
	switch {
	case !(x > 0): // NaN too
		return 0
	case x > 1:
		return 1
	}
	return x
}

// half16 converts an f16 register's value.
func half16(v uint64) float32 {
	sign := uint32(v&0x8000) << 16
	switch e, m := uint32(v>>10&31), uint32(v&1023); {
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	case e == 0:
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	default:
		return math.Float32frombits(sign | (e+112)<<23 | m<<13)
	}
}

// bfloat converts a bf16 register's value.
func bfloat(v uint64) float32 { return math.Float32frombits(uint32(v) << 16) }

// toBF16 rounds to nearest even.
func toBF16(x float32) uint64 {
	b := math.Float32bits(x)
	if x != x {
		return nan16
	}
	return uint64((b + 0x7fff + b>>16&1) >> 16)
}

// exactly compares a result with the exact one: the sign of their difference.
type exactly func(result *big.Float, a, b, c float64) int

// exactPrec holds any product of float64s plus another without rounding.
const exactPrec = 4400

func exact1(x float64) *big.Float { return new(big.Float).SetPrec(exactPrec).SetFloat64(x) }

func exactFMA(f *big.Float, a, b, c float64) int {
	p := exact1(a)
	p.Mul(p, exact1(b))
	return f.Cmp(p.Add(p, exact1(c)))
}

func exactDiv(f *big.Float, a, b, _ float64) int {
	p := exact1(b)
	p.Mul(p, f)
	if b < 0 {
		return -p.Cmp(exact1(a))
	}
	return p.Cmp(exact1(a))
}

func exactSqrt(f *big.Float, a, _, _ float64) int {
	p := new(big.Float).SetPrec(exactPrec)
	return p.Mul(f, f).Cmp(exact1(a))
}

// redirect turns a result rounded to nearest into one rounded by mode. next
// steps to the neighbour in the direction of its second argument.
func redirect(f float64, mode rounding, difference exactly, next func(x, to float64) float64, a, b, c float64) float64 {
	for _, x := range [...]float64{a, b, c} {
		if math.IsInf(x, 0) || x != x {
			return f
		}
	}
	sign := 0
	switch {
	case f != f || math.IsInf(f, 0) && b == 0: // of 0/0, x/0
		return f
	case math.IsInf(f, 1):
		sign = 1
	case math.IsInf(f, -1):
		sign = -1
	default:
		sign = difference(exact1(f), a, b, c)
	}
	switch up, down := math.Inf(1), math.Inf(-1); {
	case sign > 0 && (mode == roundDown || mode == roundZero && f > 0):
		return next(f, down)
	case sign < 0 && (mode == roundUp || mode == roundZero && f < 0):
		return next(f, up)
	}
	return f
}

func next32(x, to float64) float64 { return float64(math.Nextafter32(float32(x), float32(to))) }
