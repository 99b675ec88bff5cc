package ptx

import "math/bits"

// An intOp is an integer instruction on operands extended to 64 bits, by their
// sign if the type has one. The result is cut to the type.
type intOp struct {
	args int
	u    func(a, b, c uint64) uint64
	s    func(a, b, c int64) int64 // where the sign matters
	bits bool                      // takes .b types, else .u and .s
}

var intOps = map[string]intOp{
	"add": {args: 2, u: func(a, b, _ uint64) uint64 { return a + b }},
	"sub": {args: 2, u: func(a, b, _ uint64) uint64 { return a - b }},
	"neg": {args: 1, u: func(a, _, _ uint64) uint64 { return -a }},
	"abs": {args: 1, u: func(a, _, _ uint64) uint64 { return a }, s: func(a, _, _ int64) int64 { return max(a, -a) }},
	"min": {args: 2, u: func(a, b, _ uint64) uint64 { return min(a, b) }, s: func(a, b, _ int64) int64 { return min(a, b) }},
	"max": {args: 2, u: func(a, b, _ uint64) uint64 { return max(a, b) }, s: func(a, b, _ int64) int64 { return max(a, b) }},
	"sad": {args: 3, u: func(a, b, c uint64) uint64 { return c + max(a, b) - min(a, b) },
		s: func(a, b, c int64) int64 { return c + max(a, b) - min(a, b) }},
	"div": {args: 2, u: func(a, b, _ uint64) uint64 { return a / max(b, 1) }, s: func(a, b, _ int64) int64 { return a / nonzero(b) }},
	"rem": {args: 2, u: func(a, b, _ uint64) uint64 { return a % max(b, 1) }, s: func(a, b, _ int64) int64 { return a % nonzero(b) }},
	"and": {args: 2, bits: true, u: func(a, b, _ uint64) uint64 { return a & b }},
	"or":  {args: 2, bits: true, u: func(a, b, _ uint64) uint64 { return a | b }},
	"xor": {args: 2, bits: true, u: func(a, b, _ uint64) uint64 { return a ^ b }},
	"not": {args: 1, bits: true, u: func(a, _, _ uint64) uint64 { return ^a }},
	"cnot": {args: 1, bits: true, u: func(a, _, _ uint64) uint64 {
		if a == 0 {
			return 1
		}
		return 0
	}},
}

// nonzero keeps divisions of lanes that are not active from panicking.
func nonzero(b int64) int64 {
	if b == 0 {
		return 1
	}
	return b
}

// fastInts are hot instructions, written out.
var fastInts = map[string]rowFunc{
	"add.s32": addInt32, "add.u32": addInt32, "add.s64": addInt64, "add.u64": addInt64,
	"sub.s32": subInt32, "sub.u32": subInt32,
	"and.b32": andBits, "and.b64": andBits, "or.b32": orBits, "or.b64": orBits,
	"xor.b32": xorBits, "xor.b64": xorBits,
	"mul.lo.s32": mulInt32, "mul.lo.u32": mulInt32, "mad.lo.s32": madInt32, "mad.lo.u32": madInt32,
	"mul.wide.u32": mulWideU32, "mul.wide.s32": mulWideS32,
}

func addInt32(d, a, b, _ *row) {
	for l := range d {
		d[l] = uint64(uint32(a[l] + b[l]))
	}
}

func addInt64(d, a, b, _ *row) {
	for l := range d {
		d[l] = a[l] + b[l]
	}
}

func subInt32(d, a, b, _ *row) {
	for l := range d {
		d[l] = uint64(uint32(a[l] - b[l]))
	}
}

func andBits(d, a, b, _ *row) {
	for l := range d {
		d[l] = a[l] & b[l]
	}
}

func orBits(d, a, b, _ *row) {
	for l := range d {
		d[l] = a[l] | b[l]
	}
}

func xorBits(d, a, b, _ *row) {
	for l := range d {
		d[l] = a[l] ^ b[l]
	}
}

func mulInt32(d, a, b, _ *row) {
	for l := range d {
		d[l] = uint64(uint32(a[l] * b[l]))
	}
}

func madInt32(d, a, b, c *row) {
	for l := range d {
		d[l] = uint64(uint32(a[l]*b[l] + c[l]))
	}
}

func mulWideU32(d, a, b, _ *row) {
	for l := range d {
		d[l] = a[l] * b[l]
	}
}

func mulWideS32(d, a, b, _ *row) {
	for l := range d {
		d[l] = uint64(int64(int32(a[l])) * int64(int32(b[l])))
	}
}

func decodeInt(b *builder, o *opcode, t typ) instr {
	if o.name == "mul" || o.name == "mad" {
		return decodeMul(b, o, t)
	}
	if o.take("cc") {
		return carry(b, o, t, true)
	}
	op, ok := intOps[o.name]
	if !ok || t.bits() < 16 || op.bits != (t.kind() == kindBits) {
		panic(b.errorf("%s has no type %s", o.name, t))
	}
	in := b.rowsOf(t, times(t, op.args)...)
	switch {
	case o.name == "div" || o.name == "rem":
		in.kind, in.exec = instrExec, dividing(op.row(t))
		return in
	case o.take("sat"):
		if t != tS32 || o.name != "add" && o.name != "sub" {
			panic(b.errorf("%s has no type %s with .sat", o.name, t))
		}
		sum := op.u
		op.u, op.s = nil, func(a, b, c int64) int64 {
			return min(max(int64(sum(uint64(a), uint64(b), uint64(c))), -1<<31), 1<<31-1)
		}
	}
	in.row = op.row(t)
	if fast := fastInts[o.name+"."+t.String()]; fast != nil && op.u != nil {
		in.row = fast
	}
	return in
}

// row applies the instruction to whole rows.
func (op intOp) row(t typ) rowFunc {
	shift := 64 - t.bits()
	mask := ^uint64(0) >> shift
	if t.signed() && op.s != nil {
		f := op.s
		return func(d, a, b, c *row) {
			for l := range d {
				d[l] = uint64(f(int64(a[l]<<shift)>>shift, int64(b[l]<<shift)>>shift, int64(c[l]<<shift)>>shift)) & mask
			}
		}
	}
	f := op.u
	return func(d, a, b, c *row) {
		for l := range d {
			d[l] = f(a[l], b[l], c[l]) & mask
		}
	}
}

// dividing is a division, whose result PTX leaves undefined for a divisor of
// zero.
func dividing(f rowFunc) execFunc {
	return func(w *warp, in *instr, m uint32) {
		divisor := &w.regs[in.b]
		for n := m; n != 0; n &= n - 1 {
			if l := bits.TrailingZeros32(n); divisor[l] == 0 {
				w.fail(in, l, Undefined, "divides by zero")
				return
			}
		}
		w.apply(f, in, m)
	}
}

// decodeMul decodes mul and mad of integers.
func decodeMul(b *builder, o *opcode, t typ) instr {
	mode := o.oneOf("lo", "hi", "wide")
	if mode == "" || !t.integer() || t.bits() < 16 || mode == "wide" && t.bits() == 64 {
		panic(b.errorf("%s has no such form", o.name))
	}
	result := t
	if mode == "wide" {
		result = map[typ]typ{tU16: tU32, tS16: tS32, tU32: tU64, tS32: tS64}[t]
	}
	third := noType
	if o.name == "mad" {
		third = result
	}
	in := b.rowsOf(result, t, t, third)
	if in.row = fastInts[o.name+"."+mode+"."+t.String()]; in.row == nil {
		in.row = mulRow(mode, t, o.name == "mad")
	}
	return in
}

// mulRow multiplies in 128 bits and takes the half that mode says.
func mulRow(mode string, t typ, add bool) rowFunc {
	n := t.bits()
	shift := 64 - n
	mask := ^uint64(0) >> shift
	if mode == "wide" {
		mask = ^uint64(0) >> (64 - 2*n)
	}
	if mode == "lo" { // whose bits do not depend on signs
		return func(d, a, b, c *row) {
			for l := range d {
				v := a[l] * b[l]
				if add {
					v += c[l]
				}
				d[l] = v & mask
			}
		}
	}
	return func(d, a, b, c *row) {
		for l := range d {
			x, y := a[l], b[l]
			hi, lo := bits.Mul64(x, y)
			if t.signed() {
				sx, sy := int64(x<<shift)>>shift, int64(y<<shift)>>shift
				hi, lo = mulSigned(sx, sy)
			}
			v := lo
			if mode == "hi" {
				v = hi
				if n < 64 {
					v = lo >> n
				}
			}
			if add {
				v += c[l]
			}
			d[l] = v & mask
		}
	}
}

// mulSigned is the product of signed numbers in 128 bits.
func mulSigned(a, b int64) (hi, lo uint64) {
	hi, lo = bits.Mul64(uint64(a), uint64(b))
	if a < 0 {
		hi -= uint64(b)
	}
	if b < 0 {
		hi -= uint64(a)
	}
	return hi, lo
}

// decodeCarry decodes addc and subc.
func decodeCarry(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	return carry(b, o, t, o.take("cc"))
}

// carry is add.cc, addc, sub.cc and subc. The carry of a subtraction is its
// borrow.
func carry(b *builder, o *opcode, t typ, gives bool) instr {
	if !t.integer() || t.bits() < 32 || o.name != "add" && o.name != "sub" && o.name != "addc" && o.name != "subc" {
		panic(b.errorf("%s.cc has no type %s", o.name, t))
	}
	in := b.rowsOf(t, t, t)
	in.kind = instrExec
	takes, subtract := len(o.name) == 4, o.name[:3] == "sub"
	shift := 64 - t.bits()
	in.exec = func(w *warp, in *instr, m uint32) {
		d, x, y := &w.regs[in.d], &w.regs[in.a], &w.regs[in.b]
		for ; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			var in, v, out1, out2 uint64
			if takes {
				in = uint64(w.carry>>l&1) << shift
			}
			// In the upper bits, a carry comes out of bit 63.
			if subtract {
				v, out1 = bits.Sub64(x[l]<<shift, y[l]<<shift, 0)
				v, out2 = bits.Sub64(v, in, 0)
			} else {
				v, out1 = bits.Add64(x[l]<<shift, y[l]<<shift, 0)
				v, out2 = bits.Add64(v, in, 0)
			}
			d[l] = v >> shift
			if gives {
				w.carry = w.carry&^(1<<l) | uint32(out1|out2)<<l
			}
		}
	}
	return in
}
