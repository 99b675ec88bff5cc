package ptx

import "math"

// A halfOp is an instruction on f16 or bf16: computed in float64, where a
// product of two is exact and a sum is rounded to odd, and then rounded.
type halfOp struct {
	args int
	f    func(a, b, c float64) float64
}

var halfOps = map[string]halfOp{
	"add":  {2, func(a, b, _ float64) float64 { return sumToOdd(a, b) }},
	"sub":  {2, func(a, b, _ float64) float64 { return sumToOdd(a, -b) }},
	"mul":  {2, func(a, b, _ float64) float64 { return a * b }},
	"fma":  {3, func(a, b, c float64) float64 { return sumToOdd(a*b, c) }},
	"min":  {2, func(a, b, _ float64) float64 { return lesser(a, b) }},
	"max":  {2, func(a, b, _ float64) float64 { return -lesser(-a, -b) }},
	"ex2":  {1, func(a, _, _ float64) float64 { return math.Exp2(a) }},
	"tanh": {1, func(a, _, _ float64) float64 { return math.Tanh(a) }},
}

// decodeHalf decodes arithmetic on f16 and bf16, one or two to a register.
func decodeHalf(b *builder, o *opcode, t typ) instr {
	if o.name == "abs" || o.name == "neg" {
		return decodeHalfSign(b, o, t)
	}
	op, ok := halfOps[o.name]
	if !ok {
		panic(b.errorf("%s has no type %s", o.name, t))
	}
	o.first("rn", "approx")
	in := b.rowsOf(t, times(t, op.args)...)
	f := halfModifiers(o, t, op.f)
	read, format := halfReader(t), formats[t]
	one := func(a, b, c uint64) uint64 {
		return format.round(f(float64(read(a)), float64(read(b)), float64(read(c))), roundEven)
	}
	in.row = func(d, a, b, c *row) {
		for l := range d {
			d[l] = one(a[l], b[l], c[l])
		}
	}
	if t.bits() == 32 {
		in.row = func(d, a, b, c *row) {
			for l := range d {
				d[l] = one(a[l], b[l], c[l]) | one(a[l]>>16, b[l]>>16, c[l]>>16)<<16
			}
		}
	}
	return in
}

// halfReader returns the function that reads the lower half of a register.
func halfReader(t typ) func(uint64) float32 {
	if t.oneOf(tBF16, tBF16x2) {
		return func(v uint64) float32 { return bfloat(v & 0xffff) }
	}
	return half16
}

// halfModifiers wraps f in .ftz, .sat, .relu and .NaN.
func halfModifiers(o *opcode, t typ, f func(a, b, c float64) float64) func(a, b, c float64) float64 {
	if o.take("NaN") {
		inner := f
		f = func(a, b, c float64) float64 {
			if a != a || b != b {
				return math.NaN()
			}
			return inner(a, b, c)
		}
	}
	if o.take("sat") {
		inner := f
		f = func(a, b, c float64) float64 { return saturate(inner(a, b, c)) }
	}
	if o.take("relu") {
		inner := f
		f = func(a, b, c float64) float64 {
			if x := inner(a, b, c); !(x <= 0) {
				return x
			}
			return 0
		}
	}
	if o.take("ftz") {
		inner, format := f, formats[t]
		tiny := math.Ldexp(1, 2-1<<(format.exp-1))
		flush := func(x float64) float64 {
			if math.Abs(x) < tiny {
				return math.Copysign(0, x)
			}
			return x
		}
		f = func(a, b, c float64) float64 { return flush(inner(flush(a), flush(b), flush(c))) }
	}
	return f
}

// decodeHalfSign decodes abs and neg, which are about one bit.
func decodeHalfSign(b *builder, o *opcode, t typ) instr {
	in := b.rowsOf(t, t)
	sign, exponent := uint64(0x8000), (uint64(1)<<formats[t].exp-1)<<formats[t].man
	if t.bits() == 32 {
		sign |= sign << 16
	}
	in.row = signRow(o.name, sign)
	if o.take("ftz") {
		inner := in.row
		in.row = func(d, a, b, c *row) {
			inner(d, a, b, c)
			for l, v := range d {
				for _, half := range []uint64{0xffff, 0xffff << 16} {
					if v&half&(exponent|exponent<<16) == 0 {
						v &= ^half | 0x80008000
					}
				}
				d[l] = v
			}
		}
	}
	return in
}
