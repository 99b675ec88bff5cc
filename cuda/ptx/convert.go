package ptx

import (
	"math"
	"math/bits"
)

// decodeConvert decodes cvt.{round}{.ftz}{.sat}.dtype.stype d, a{, b}.
func decodeConvert(b *builder, o *opcode) instr {
	mode := o.oneOf("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")
	ftz, sat, relu := o.take("ftz"), o.take("sat"), o.take("relu")
	d, ok := o.typ()
	s, ok2 := o.typ()
	if !ok || !ok2 || d == tPred || s == tPred || s.kind() == kindTF32 {
		panic(b.errorf("cvt has no such form"))
	}
	if d.oneOf(tF16x2, tBF16x2) {
		return convertTwo(b, d, s, mode, relu, sat)
	}
	if s.oneOf(tF16x2, tBF16x2) || d.kind() == kindBits || s.kind() == kindBits {
		panic(b.errorf("cvt from %s to %s is not modelled", s, d))
	}
	in, dBits := b.convertRows(d, s)
	b.checkConversion(d, s, mode)
	if in.row = fastConversions[d.String()+"."+s.String()]; in.row != nil && dBits == d.bits() && !ftz && !sat && !relu && (mode == "" || mode == "rn") {
		return in
	}
	f := conversion(d, s, mode, ftz, sat, relu)
	in.row = func(d, a, _, _ *row) {
		for l := range d {
			d[l] = f(a[l])
		}
	}
	if d.signed() && dBits > d.bits() {
		in.row = extended(in.row, d.bits(), dBits)
	}
	return in
}

// convertRows decodes the operands, whose registers may be wider than the
// types.
func (b *builder) convertRows(d, s typ) (in instr, dBits int) {
	b.count(2, 2)
	to := b.registerOf(b.s.args[0], d.bits(), atLeast)
	in.d = to.index
	in.a = b.wideSrc(b.s.args[1], s)
	return in, to.typ.bits()
}

// checkConversion checks that the rounding mode is one for these types.
func (b *builder) checkConversion(d, s typ, mode string) {
	float := func(t typ) bool { return !t.integer() }
	toInt := mode == "rni" || mode == "rzi" || mode == "rmi" || mode == "rpi"
	narrows := float(d) && (!float(s) || formats[d].man < formats[s].man || formats[d].exp < formats[s].exp)
	switch {
	case float(s) && d.integer() && !toInt,
		!float(s) && !float(d) && mode != "",
		!float(s) && float(d) && (toInt || mode == ""),
		float(s) && float(d) && narrows && (toInt || mode == ""),
		mode == "rna" && d != tTF32:
		panic(b.errorf("cvt from %s to %s with rounding %q", s, d, mode))
	}
}

// extended widens a signed result to its register.
func extended(f rowFunc, from, to int) rowFunc {
	mask := ^uint64(0) >> (64 - to)
	return func(d, a, b, c *row) {
		f(d, a, b, c)
		for l := range d {
			d[l] = uint64(int64(d[l]<<(64-from))>>(64-from)) & mask
		}
	}
}

// fastConversions are hot conversions, rounded to nearest where they round.
var fastConversions = map[string]rowFunc{
	"u64.u32": copyLow32, "u32.u64": copyLow32, "s64.s32": func(d, a, _, _ *row) {
		for l := range d {
			d[l] = uint64(int64(int32(a[l])))
		}
	},
	"f32.f16": func(d, a, _, _ *row) {
		for l := range d {
			d[l] = bits32(half16(a[l]))
		}
	},
	"f32.bf16": func(d, a, _, _ *row) {
		for l := range d {
			d[l] = bits32(bfloat(a[l] & 0xffff))
		}
	},
	"bf16.f32": func(d, a, _, _ *row) {
		for l := range d {
			d[l] = toBF16(float32of(a[l]))
		}
	},
	"f32.s32": func(d, a, _, _ *row) {
		for l := range d {
			d[l] = uint64(math.Float32bits(float32(int32(a[l]))))
		}
	},
	"f32.u32": func(d, a, _, _ *row) {
		for l := range d {
			d[l] = uint64(math.Float32bits(float32(uint32(a[l]))))
		}
	},
}

func copyLow32(d, a, _, _ *row) {
	for l := range d {
		d[l] = uint64(uint32(a[l]))
	}
}

// conversion returns the function from one type's bits to the other's.
func conversion(d, s typ, mode string, ftz, sat, relu bool) func(uint64) uint64 {
	switch {
	case s.integer() && d.integer():
		return func(v uint64) uint64 { return intToInt(d, s, v, sat) }
	case s.integer():
		return func(v uint64) uint64 { return intToFloat(d, s, v, roundings[mode], sat) }
	}
	read := floatReader(s, ftz)
	if s.bits() == 64 {
		ftz = ftz && d == tF32
	}
	if d.integer() {
		return func(v uint64) uint64 { return floatToInt(d, s, toIntegral(read(v), mode)) }
	}
	f := formats[d]
	return func(v uint64) uint64 {
		x := read(v)
		if mode != "" && mode[len(mode)-1] == 'i' {
			x = toIntegral(x, mode)
		}
		if sat {
			x = saturate(x)
		}
		if relu && x <= 0 {
			x = 0
		}
		r := f.round(x, roundings[mode])
		switch {
		case ftz && d == tF32:
			r = uint64(math.Float32bits(flush(float32of(r))))
		case d == tTF32:
			r <<= 13 // a tf32 is the upper 19 bits of an f32
		}
		return r
	}
}

// extend widens an integer to 64 bits, and says whether it is negative.
func extend(t typ, v uint64) (uint64, bool) {
	shift := 64 - t.bits()
	if t.signed() {
		v = uint64(int64(v<<shift) >> shift)
		return v, int64(v) < 0
	}
	return v << shift >> shift, false
}

func intToInt(d, s typ, v uint64, sat bool) uint64 {
	v, negative := extend(s, v)
	mask := ^uint64(0) >> (64 - d.bits())
	if sat {
		low, high := uint64(0), mask
		if d.signed() {
			low, high = ^(mask >> 1), mask>>1
		}
		switch {
		case negative && (!d.signed() || int64(v) < int64(low)):
			v = low
		case !negative && v > high:
			v = high
		}
	}
	return v & mask
}

func intToFloat(d, s typ, v uint64, mode rounding, sat bool) uint64 {
	v, negative := extend(s, v)
	if negative {
		v = -v
	}
	if sat && negative {
		return 0
	}
	if sat && v > 1 {
		v = 1
	}
	return formats[d].pack(negative, v, 0, mode)
}

// toIntegral rounds to an integer.
func toIntegral(x float64, mode string) float64 {
	switch roundings[mode] {
	case roundZero:
		return math.Trunc(x)
	case roundDown:
		return math.Floor(x)
	case roundUp:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}

// floatToInt converts an integral number, clamped to the type's range. For
// NaN it gives what PTX says: zero, or the top bit where f64 or a 64-bit
// integer is involved.
func floatToInt(d, s typ, x float64) uint64 {
	n := d.bits()
	mask := ^uint64(0) >> (64 - n)
	limit := math.Ldexp(1, n)
	if d.signed() {
		limit /= 2
	}
	switch {
	case x != x && (s == tF64 || n == 64):
		return 1 << (n - 1)
	case x != x:
		return 0
	case x >= limit && d.signed():
		return mask >> 1
	case x >= limit:
		return mask
	case x <= -limit && d.signed():
		return 1 << (n - 1)
	case x <= 0 && !d.signed():
		return 0
	case x < 0:
		return uint64(int64(x)) & mask
	}
	return uint64(x)
}

// convertTwo decodes cvt.rn.f16x2.f32 d, a, b: a goes to the upper half.
func convertTwo(b *builder, d, s typ, mode string, relu, sat bool) instr {
	if s != tF32 || mode != "rn" && mode != "rz" || sat {
		panic(b.errorf("cvt from %s to %s with rounding %q", s, d, mode))
	}
	in := b.rowsOf(d, tF32, tF32)
	format, round := formats[d], roundings[mode]
	one := func(v uint64) uint64 {
		x := float64(float32of(v))
		if relu && x <= 0 {
			x = 0
		}
		return format.round(x, round)
	}
	in.row = func(d, a, b, _ *row) {
		for l := range d {
			d[l] = one(a[l])<<16 | one(b[l])
		}
	}
	return in
}

// each computes d from a, b and c for the lanes in m.
func (w *warp) each(in *instr, m uint32, f func(l int, a, b, c uint64) uint64) {
	d, a, b, c := &w.regs[in.d], &w.regs[in.a], &w.regs[in.b], &w.regs[in.c]
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		d[l] = f(l, a[l], b[l], c[l])
	}
}
