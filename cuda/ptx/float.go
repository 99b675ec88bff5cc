package ptx

import (
	"math"
	"math/big"
	"math/bits"
)

// A floatOp is an instruction on f32 or f64, rounded to nearest. The .approx
// and .full forms give the same: float64's result, rounded once, which is well
// within the errors that PTX documents for them.
type floatOp struct {
	args               int
	f32                func(a, b, c float32) float32
	f64                func(a, b, c float64) float64
	exact              exactly                              // for the other rounding modes
	terms              func(a, b, c float64) (x, y float64) // of which it is the sum
	inverse            bool                                 // the quotient of 1 and its operand
	fixed              bool                                 // takes no rounding mode at all
	approx32, approx64 bool                                 // exists only as .approx
}

func addExactly(f *big.Float, a, b, _ float64) int { return exactFMA(f, a, 1, b) }
func subExactly(f *big.Float, a, b, _ float64) int { return exactFMA(f, a, 1, -b) }
func mulExactly(f *big.Float, a, b, _ float64) int { return exactFMA(f, a, b, 0) }

var floatOps = map[string]floatOp{
	"add": {args: 2, exact: addExactly, terms: func(a, b, _ float64) (x, y float64) { return a, b },
		f32: func(a, b, _ float32) float32 { return a + b }, f64: func(a, b, _ float64) float64 { return a + b }},
	"sub": {args: 2, exact: subExactly, terms: func(a, b, _ float64) (x, y float64) { return a, -b },
		f32: func(a, b, _ float32) float32 { return a - b }, f64: func(a, b, _ float64) float64 { return a - b }},
	"mul": {args: 2, exact: mulExactly,
		f32: func(a, b, _ float32) float32 { return a * b }, f64: func(a, b, _ float64) float64 { return a * b }},
	"fma": {args: 3, exact: exactFMA, terms: func(a, b, c float64) (x, y float64) { return a * b, c },
		f32: fma32, f64: math.FMA},
	"mad": {args: 3, exact: exactFMA, terms: func(a, b, c float64) (x, y float64) { return a * b, c },
		f32: fma32, f64: math.FMA},
	"div": {args: 2, exact: exactDiv,
		f32: func(a, b, _ float32) float32 { return a / b }, f64: func(a, b, _ float64) float64 { return a / b }},
	"sqrt": {args: 1, exact: exactSqrt,
		f32: func(a, _, _ float32) float32 { return float32(math.Sqrt(float64(a))) },
		f64: func(a, _, _ float64) float64 { return math.Sqrt(a) }},
	"rcp": {args: 1, exact: exactDiv, inverse: true, f32: func(a, _, _ float32) float32 { return 1 / a }, f64: func(a, _, _ float64) float64 { return 1 / a }},
	"rsqrt": {args: 1, approx32: true, approx64: true, f32: in64(func(a float64) float64 { return 1 / math.Sqrt(a) }),
		f64: func(a, _, _ float64) float64 { return 1 / math.Sqrt(a) }},
	"ex2":  {args: 1, approx32: true, f32: in64(math.Exp2)},
	"lg2":  {args: 1, approx32: true, f32: in64(log2)},
	"sin":  {args: 1, approx32: true, f32: in64(math.Sin)},
	"cos":  {args: 1, approx32: true, f32: in64(math.Cos)},
	"tanh": {args: 1, approx32: true, f32: in64(math.Tanh)},
	"min": {args: 2, fixed: true, f32: func(a, b, _ float32) float32 { return lesser(a, b) },
		f64: func(a, b, _ float64) float64 { return lesser(a, b) }},
	"max": {args: 2, fixed: true, f32: func(a, b, _ float32) float32 { return -lesser(-a, -b) },
		f64: func(a, b, _ float64) float64 { return -lesser(-a, -b) }},
}

// in64 computes in float64 and rounds.
func in64(f func(float64) float64) func(a, b, c float32) float32 {
	return func(a, _, _ float32) float32 { return float32(f(float64(a))) }
}

// log2 keeps its precision near 1, where math.Log2 loses it.
func log2(x float64) float64 {
	if x > 0.5 && x < 2 {
		return math.Log1p(x-1) * math.Log2E
	}
	return math.Log2(x)
}

// lesser is PTX's min: a number if there is one, and -0 before +0.
func lesser[T float32 | float64](a, b T) T {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return min(a, b)
}

// fastFloats are hot instructions without modifiers, written out.
var fastFloats = map[string]rowFunc{
	"add.f32": addF32, "sub.f32": subF32, "mul.f32": mulF32, "fma.f32": fmaF32, "max.f32": maxF32,
}

func addF32(d, a, b, _ *row) {
	for l := range d {
		d[l] = bits32(float32of(a[l]) + float32of(b[l]))
	}
}

func subF32(d, a, b, _ *row) {
	for l := range d {
		d[l] = bits32(float32of(a[l]) - float32of(b[l]))
	}
}

func mulF32(d, a, b, _ *row) {
	for l := range d {
		d[l] = bits32(float32of(a[l]) * float32of(b[l]))
	}
}

func fmaF32(d, a, b, c *row) {
	for l := range d {
		z := float64(float32of(c[l]))
		p := float64(float32of(a[l])) * float64(float32of(b[l]))
		s := p + z
		if onTie32(s) { // see fma32
			s = sumToOdd(p, z)
		}
		d[l] = bits32(float32(s))
	}
}

// fewFMA is fmaF32 for some lanes: sums of which a lane has one are mostly of few lanes.
func fewFMA(d, a, b, c *row, m uint32) {
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		d[l] = bits32(fma32(float32of(a[l]), float32of(b[l]), float32of(c[l])))
	}
}

func maxF32(d, a, b, _ *row) {
	for l := range d {
		x, y := float32of(a[l]), float32of(b[l])
		if x > y || y != y {
			d[l] = bits32(x)
		} else if x < y || x != x {
			d[l] = bits32(y)
		} else {
			d[l] = a[l] & b[l] // equal; of two zeros the positive one
		}
	}
}

// decodeFloat decodes arithmetic on f32 and f64.
func decodeFloat(b *builder, o *opcode, t typ) instr {
	if o.name == "abs" || o.name == "neg" || o.name == "copysign" {
		return decodeSign(b, o, t)
	}
	op, ok := floatOps[o.name]
	if !ok || t == tF64 && op.f64 == nil {
		panic(b.errorf("%s has no type %s", o.name, t))
	}
	mode := o.oneOf("rn", "rz", "rm", "rp", "approx", "full")
	plain := len(o.mods) == 0
	b.checkFloatMode(o, op, t, mode)
	in := b.rowsOf(t, times(t, op.args)...)
	if in.row = fastFloats[o.name+"."+t.String()]; in.row != nil && plain && (mode == "" || mode == "rn") {
		if o.name == "fma" {
			in.few = fewFMA
		}
		return in
	}
	if t == tF64 {
		in.row = op.rows64(o, roundings[mode])
	} else {
		in.row = op.rows32(o, roundings[mode])
	}
	switch o.name {
	case "ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt", "div":
		in.kind, in.exec = instrExec, runSpecial
	}
	return in
}

// runSpecial computes a row by the unit for special functions, of which a multiprocessor has few.
func runSpecial(w *warp, in *instr, m uint32) {
	if w.x.tally != nil {
		w.x.tally.Special++
	}
	w.apply(in.row, in, m)
}

// checkFloatMode checks that the instruction exists with the mode.
func (b *builder) checkFloatMode(o *opcode, op floatOp, t typ, mode string) {
	approxOnly := op.approx32 && t == tF32 || op.approx64 && t == tF64
	optional := o.name == "add" || o.name == "sub" || o.name == "mul" || op.fixed
	switch {
	case approxOnly && mode != "approx",
		op.fixed && mode != "",
		mode == "" && !optional,
		mode == "full" && (o.name != "div" || t != tF32),
		mode == "approx" && !approxOnly && !(t == tF32 && (o.name == "div" || o.name == "rcp" || o.name == "sqrt")) && !(t == tF64 && o.name == "rcp"):
		if mode == "" {
			panic(b.errorf("%s.%s needs a rounding mode", o.name, t))
		}
		panic(b.errorf("%s.%s has no .%s", o.name, t, mode))
	}
}

func (op floatOp) rows32(o *opcode, mode rounding) rowFunc {
	f := op.f32
	if mode != roundEven {
		nearest := f
		f = func(a, b, c float32) float32 {
			x, y, z := op.used(float64(a), float64(b), float64(c))
			return float32(op.zero(redirect(float64(nearest(a, b, c)), mode, op.exact, next32, x, y, z), mode, x, y, z))
		}
	}
	if op.fixed {
		f = minMax32(o, f)
	}
	if o.take("sat") {
		inner := f
		f = func(a, b, c float32) float32 { return saturate(inner(a, b, c)) }
	}
	if o.take("ftz") {
		inner := f
		f = func(a, b, c float32) float32 { return flush(inner(flush(a), flush(b), flush(c))) }
	}
	return func(d, a, b, c *row) {
		for l := range d {
			d[l] = bits32(f(float32of(a[l]), float32of(b[l]), float32of(c[l])))
		}
	}
}

func (op floatOp) rows64(o *opcode, mode rounding) rowFunc {
	f := op.f64
	if mode != roundEven {
		nearest := f
		f = func(a, b, c float64) float64 {
			x, y, z := op.used(a, b, c)
			return op.zero(redirect(nearest(a, b, c), mode, op.exact, math.Nextafter, x, y, z), mode, x, y, z)
		}
	}
	if o.name == "rcp" || o.name == "rsqrt" {
		o.take("ftz") // subnormals are far below what these can meet or give
	}
	return func(d, a, b, c *row) {
		for l := range d {
			d[l] = bits64(f(math.Float64frombits(a[l]), math.Float64frombits(b[l]), math.Float64frombits(c[l])))
		}
	}
}

// used returns the operands of the exact operation.
func (op floatOp) used(a, b, c float64) (x, y, z float64) {
	switch {
	case op.inverse:
		return 1, a, 0
	case op.args == 1:
		return a, 1, 0
	case op.args == 2:
		return a, b, 0
	}
	return a, b, c
}

// zero gives an exact sum of zero its sign, which is negative if rounding goes
// down and not all that was added is positive.
func (op floatOp) zero(f float64, mode rounding, a, b, c float64) float64 {
	if f != 0 || mode != roundDown || op.terms == nil || op.exact(exact1(0), a, b, c) != 0 {
		return f
	}
	if x, y := op.terms(a, b, c); math.Signbit(x) || math.Signbit(y) {
		return math.Copysign(0, -1)
	}
	return f
}

// minMax32 adds .NaN, which lets a NaN through, and .xorsign.abs.
func minMax32(o *opcode, f func(a, b, c float32) float32) func(a, b, c float32) float32 {
	nan, xor := o.take("NaN"), o.take("xorsign")
	if xor {
		o.take("abs")
	}
	if !nan && !xor {
		return f
	}
	return func(a, b, c float32) float32 {
		if nan && (a != a || b != b) {
			return float32(math.NaN())
		}
		if !xor {
			return f(a, b, c)
		}
		sign := (math.Float32bits(a) ^ math.Float32bits(b)) & (1 << 31)
		x := f(float32(math.Abs(float64(a))), float32(math.Abs(float64(b))), c)
		return math.Float32frombits(math.Float32bits(x)&^(1<<31) | sign)
	}
}

// decodeSign decodes abs, neg and copysign, which are about one bit and leave
// a NaN's others as they are.
func decodeSign(b *builder, o *opcode, t typ) instr {
	n := 1
	if o.name == "copysign" {
		n = 2
	}
	in := b.rowsOf(t, times(t, n)...)
	in.row = signRow(o.name, 1<<(t.bits()-1))
	if t == tF32 && o.name != "copysign" && o.take("ftz") {
		inner := in.row
		in.row = func(d, a, b, c *row) {
			inner(d, a, b, c)
			for l := range d {
				d[l] = uint64(math.Float32bits(flush(float32of(d[l]))))
			}
		}
	}
	return in
}

func signRow(name string, sign uint64) rowFunc {
	switch name {
	case "abs":
		return func(d, a, _, _ *row) {
			for l := range d {
				d[l] = a[l] &^ sign
			}
		}
	case "neg":
		return func(d, a, _, _ *row) {
			for l := range d {
				d[l] = a[l] ^ sign
			}
		}
	}
	return func(d, a, b, _ *row) { // a's sign, b's number
		for l := range d {
			d[l] = b[l]&^sign | a[l]&sign
		}
	}
}
