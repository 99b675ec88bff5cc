package ptx

import "math/bits"

// decodeShift decodes shl and shr, whose amounts are clamped to the width.
func decodeShift(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	if t.bits() < 16 || t.kind() != kindBits && (o.name == "shl" || !t.integer()) {
		panic(b.errorf("%s has no type %s", o.name, t))
	}
	in := b.rowsOf(t, t, tU32)
	n := t.bits()
	shift, mask := 64-n, ^uint64(0)>>(64-n)
	switch {
	case o.name == "shl":
		in.row = func(d, a, b, _ *row) { // Go's shifts do not wrap either
			for l := range d {
				d[l] = a[l] << b[l] & mask
			}
		}
	case t.signed():
		in.row = func(d, a, b, _ *row) {
			for l := range d {
				d[l] = uint64(int64(a[l]<<shift)>>shift>>b[l]) & mask
			}
		}
	default:
		in.row = func(d, a, b, _ *row) {
			for l := range d {
				d[l] = a[l] >> b[l]
			}
		}
	}
	return in
}

// decodeFunnel decodes shf, the shift of two registers as one.
func decodeFunnel(b *builder, o *opcode) instr {
	direction, mode := o.oneOf("l", "r"), o.oneOf("wrap", "clamp")
	t := b.typeOf(o)
	if direction == "" || mode == "" || t != tB32 {
		panic(b.errorf("shf has no such form"))
	}
	in := b.rowsOf(t, t, t, tU32)
	left, wrap := direction == "l", mode == "wrap"
	in.row = func(d, a, b, c *row) {
		for l := range d {
			n := min(c[l], 32)
			if wrap {
				n = c[l] & 31
			}
			v := b[l]<<32 | a[l]
			if left {
				d[l] = v << n >> 32
			} else {
				d[l] = uint64(uint32(v >> n))
			}
		}
	}
	return in
}

// A bitOp is an instruction on bit fields and counts.
type bitOp struct {
	types  []typ
	result typ // noType for the operands' type
	args   [3]typ
	f      func(t typ, a, b, c uint64) uint64
}

// same stands for the instruction's type among an instruction's operands.
const same = typ(255)

var bitOps = map[string]bitOp{
	"popc": {[]typ{tB32, tB64}, tU32, [3]typ{same}, func(_ typ, a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) }},
	"clz": {[]typ{tB32, tB64}, tU32, [3]typ{same}, func(t typ, a, _, _ uint64) uint64 {
		return uint64(bits.LeadingZeros64(a) - 64 + t.bits())
	}},
	"brev": {[]typ{tB32, tB64}, noType, [3]typ{same}, func(t typ, a, _, _ uint64) uint64 {
		return bits.Reverse64(a) >> (64 - t.bits())
	}},
	"bfind": {[]typ{tU32, tS32, tU64, tS64}, tU32, [3]typ{same}, func(t typ, a, _, _ uint64) uint64 { return findBit(t, a, false) }},
	"bfe":   {[]typ{tU32, tS32, tU64, tS64}, noType, [3]typ{same, tU32, tU32}, extractBits},
}

func decodeBits(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	if o.name == "bfi" {
		return insertBits(b, t)
	}
	op := bitOps[o.name]
	if !t.oneOf(op.types...) {
		panic(b.errorf("%s has no type %s", o.name, t))
	}
	f := op.f
	if o.name == "bfind" && o.take("shiftamt") {
		f = func(t typ, a, _, _ uint64) uint64 { return findBit(t, a, true) }
	}
	result, args := op.result, op.args
	if result == noType {
		result = t
	}
	for i := range args {
		if args[i] == same {
			args[i] = t
		}
	}
	in := b.rowsOf(result, args[:]...)
	in.row = func(d, a, b, c *row) {
		for l := range d {
			d[l] = f(t, a[l], b[l], c[l])
		}
	}
	return in
}

// findBit finds the highest bit that is not the sign: its place, or how far
// it is from the top; all ones if there is none.
func findBit(t typ, a uint64, amount bool) uint64 {
	n := t.bits()
	if t.signed() && a>>(n-1)&1 != 0 {
		a = ^a & (^uint64(0) >> (64 - n))
	}
	if a == 0 {
		return 1<<32 - 1
	}
	at := bits.Len64(a) - 1
	if amount {
		return uint64(n - 1 - at)
	}
	return uint64(at)
}

// extractBits is bfe: length c from position b, extended by the field's sign
// or the register's where the field reaches beyond it.
func extractBits(t typ, a, b, c uint64) uint64 {
	n := uint64(t.bits())
	pos, length := b&255, c&255
	top := min(pos+length, n)
	var sign uint64
	switch {
	case !t.signed() || length == 0:
	case pos+length > n || top == 0:
		sign = a >> (n - 1) & 1
	default:
		sign = a >> (top - 1) & 1
	}
	v := uint64(0)
	if length > 0 && pos < n {
		v = a >> pos & (^uint64(0) >> (64 - (top - pos)))
	}
	if have := max(top, pos) - pos; sign != 0 && have < n {
		v |= ^uint64(0) << have
	}
	return v & (^uint64(0) >> (64 - n))
}

// insertBits is bfi d, a, b, pos, length: the low bits of a put into b.
func insertBits(b *builder, t typ) instr {
	if !t.oneOf(tB32, tB64) {
		panic(b.errorf("bfi has no type %s", t))
	}
	in := b.rowsOf(t, t, t, tU32, tU32)
	in.kind = instrExec
	n := uint64(t.bits())
	in.exec = func(w *warp, in *instr, m uint32) {
		lengths := &w.regs[in.rows[0]]
		w.each(in, m, func(l int, a, b, c uint64) uint64 {
			pos, length := c&255, min(lengths[l]&255, n)
			field := (uint64(1)<<length - 1) << pos & (^uint64(0) >> (64 - n))
			return b&^field | a<<pos&field
		})
	}
	return in
}

// decodePermute decodes prmt: bytes picked from two registers.
func decodePermute(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	mode := o.oneOf("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
	if t != tB32 {
		panic(b.errorf("prmt has no type %s", t))
	}
	in := b.rowsOf(t, t, t, t)
	in.row = func(d, a, b, c *row) {
		for l := range d {
			d[l] = permute(mode, b[l]<<32|a[l], c[l])
		}
	}
	return in
}

// permute picks four of eight bytes. In the general form each nibble of sel
// names one, its top bit the byte's sign in its stead; a mode derives the
// names from two bits.
func permute(mode string, bytes, sel uint64) uint64 {
	var v uint64
	s := sel & 3
	for i := range uint64(4) {
		pick := sel >> (4 * i) & 15
		switch mode {
		case "f4e":
			pick = s + i
		case "b4e":
			pick = (s - i) & 7
		case "rc8":
			pick = s
		case "ecl":
			pick = max(s, i)
		case "ecr":
			pick = min(s, i)
		case "rc16":
			pick = s&1<<1 + i&1
		}
		b := bytes >> (8 * (pick & 7)) & 255
		if pick&8 != 0 {
			b = uint64(int8(b)>>7) & 255
		}
		v |= b << (8 * i)
	}
	return v
}

// decodeLogic decodes lop3: any function of three bits, by its truth table.
func decodeLogic(b *builder, o *opcode) instr {
	t := b.typeOf(o)
	if t != tB32 {
		panic(b.errorf("lop3 has no type %s", t))
	}
	in := b.rowsOf(t, t, t, t, tB32)
	table := b.s.args[4]
	if table.kind != operandInt || table.bits > 255 {
		panic(b.errorf("lop3's table is no number up to 255"))
	}
	lut := table.bits
	in.row = func(d, a, b, c *row) {
		for l := range d {
			d[l] = lop3(a[l], b[l], c[l], lut)
		}
	}
	return in
}

func lop3(a, b, c, lut uint64) uint64 {
	var v uint64
	for i := range uint64(8) {
		if lut>>i&1 == 0 {
			continue
		}
		x, y, z := a, b, c
		if i&4 == 0 {
			x = ^a
		}
		if i&2 == 0 {
			y = ^b
		}
		if i&1 == 0 {
			z = ^c
		}
		v |= x & y & z
	}
	return v & fullMask
}

// decodeDot decodes dp4a and dp2a: dot products of bytes.
func decodeDot(b *builder, o *opcode) instr {
	half := ""
	if o.name == "dp2a" {
		if half = o.oneOf("lo", "hi"); half == "" {
			panic(b.errorf("dp2a has neither .lo nor .hi"))
		}
	}
	t, ok := o.typ()
	u, ok2 := o.typ()
	if !ok || !ok2 || !t.oneOf(tU32, tS32) || !u.oneOf(tU32, tS32) {
		panic(b.errorf("%s needs two types of 32 bits", o.name))
	}
	in := b.rowsOf(tB32, tB32, tB32, tB32)
	n, size := 4, 8 // of a's parts
	if half != "" {
		n, size = 2, 16
	}
	first := 0
	if half == "hi" {
		first = 2
	}
	in.row = func(d, a, b, c *row) {
		for l := range d {
			sum := int64(c[l])
			for i := range n {
				sum += part(t, a[l], i, size) * part(u, b[l], first+i, 8)
			}
			d[l] = uint64(uint32(sum))
		}
	}
	return in
}

// part is the i-th piece of size bits of v.
func part(t typ, v uint64, i, size int) int64 {
	v = v >> (i * size) << (64 - size)
	if t.signed() {
		return int64(v) >> (64 - size)
	}
	return int64(v >> (64 - size))
}
