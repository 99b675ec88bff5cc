package ptx

import "math"

// A comparison is a relation between two operands of one type.
type comparison struct {
	s func(a, b int64) bool
	u func(a, b uint64) bool
	f func(a, b float64) bool
}

// comparisons has PTX's names of them. For floats, the plain ones are false
// for NaN and those that end in u are true.
var comparisons = map[string]comparison{
	"eq": {func(a, b int64) bool { return a == b }, func(a, b uint64) bool { return a == b }, func(a, b float64) bool { return a == b }},
	"ne": {func(a, b int64) bool { return a != b }, func(a, b uint64) bool { return a != b }, func(a, b float64) bool { return a < b || a > b }},
	"lt": {func(a, b int64) bool { return a < b }, nil, func(a, b float64) bool { return a < b }},
	"le": {func(a, b int64) bool { return a <= b }, nil, func(a, b float64) bool { return a <= b }},
	"gt": {func(a, b int64) bool { return a > b }, nil, func(a, b float64) bool { return a > b }},
	"ge": {func(a, b int64) bool { return a >= b }, nil, func(a, b float64) bool { return a >= b }},
	"lo": {u: func(a, b uint64) bool { return a < b }},
	"ls": {u: func(a, b uint64) bool { return a <= b }},
	"hi": {u: func(a, b uint64) bool { return a > b }},
	"hs": {u: func(a, b uint64) bool { return a >= b }},

	"equ": {f: func(a, b float64) bool { return !(a < b || a > b) }},
	"neu": {f: func(a, b float64) bool { return a != b }},
	"ltu": {f: func(a, b float64) bool { return !(a >= b) }},
	"leu": {f: func(a, b float64) bool { return !(a > b) }},
	"gtu": {f: func(a, b float64) bool { return !(a <= b) }},
	"geu": {f: func(a, b float64) bool { return !(a < b) }},
	"num": {f: func(a, b float64) bool { return a == a && b == b }},
	"nan": {f: func(a, b float64) bool { return a != a || b != b }},
}

// comparisonNames in a form for oneOf.
var comparisonNames = func() []string {
	var names []string
	for name := range comparisons {
		names = append(names, name)
	}
	return names
}()

// unsignedNames are what the relations of .u types are called as well.
var unsignedNames = map[string]string{"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}

// A test is a comparison over rows: a bit for every lane.
type test func(a, b *row) uint32

// fastTests are hot comparisons, written out.
var fastTests = map[string]test{
	"eq.s32": testEqual, "eq.u32": testEqual, "eq.b32": testEqual, "eq.s64": testEqual, "eq.u64": testEqual, "eq.b64": testEqual,
	"ne.s32": testUnequal, "ne.u32": testUnequal, "ne.b32": testUnequal, "ne.s64": testUnequal, "ne.u64": testUnequal, "ne.b64": testUnequal,
	"lt.u32": testLess, "lt.u64": testLess,
	"lt.s32": func(a, b *row) uint32 {
		var m uint32
		for l := range a {
			if int32(a[l]) < int32(b[l]) {
				m |= 1 << l
			}
		}
		return m
	},
}

func testEqual(a, b *row) uint32 {
	var m uint32
	for l := range a {
		if a[l] == b[l] {
			m |= 1 << l
		}
	}
	return m
}

func testUnequal(a, b *row) uint32 { return ^testEqual(a, b) }

func testLess(a, b *row) uint32 {
	var m uint32
	for l := range a {
		if a[l] < b[l] {
			m |= 1 << l
		}
	}
	return m
}

// decodeTestOf takes the comparison and the type that setp and set share.
func (b *builder) decodeTestOf(o *opcode, t typ, relation string) test {
	ftz := o.take("ftz")
	if fast := fastTests[relation+"."+t.String()]; fast != nil {
		return fast
	}
	c, ok := comparisons[relation]
	n := t.bits()
	switch t.kind() {
	case kindFloat, kindHalf:
		if !ok || c.f == nil || n == 32 && t != tF32 {
			break
		}
		read := floatReader(t, ftz)
		return func(x, y *row) (m uint32) {
			for l := range x {
				if c.f(read(x[l]), read(y[l])) {
					m |= 1 << l
				}
			}
			return m
		}
	case kindInt:
		if !ok || c.s == nil || n < 16 {
			break
		}
		shift := 64 - n
		return func(x, y *row) (m uint32) {
			for l := range x {
				if c.s(int64(x[l]<<shift)>>shift, int64(y[l]<<shift)>>shift) {
					m |= 1 << l
				}
			}
			return m
		}
	case kindUint, kindBits:
		if other, ok := unsignedNames[relation]; ok && t.kind() == kindUint {
			c = comparisons[other]
		}
		if c.u == nil || n < 16 {
			break
		}
		return func(x, y *row) (m uint32) {
			for l := range x {
				if c.u(x[l], y[l]) {
					m |= 1 << l
				}
			}
			return m
		}
	}
	panic(b.errorf("no comparison .%s of type %s", relation, t))
}

// floatReader returns the function that reads a register as a number.
func floatReader(t typ, ftz bool) func(uint64) float64 {
	switch {
	case t == tF64:
		return math.Float64frombits
	case t.kind() == kindHalf:
		half := halfReader(t)
		return func(v uint64) float64 { return float64(half(v)) }
	case ftz:
		return func(v uint64) float64 { return float64(flush(float32of(v))) }
	}
	return func(v uint64) float64 { return float64(float32of(v)) }
}

// boolOps combine a comparison with a predicate.
var boolOps = map[string]func(a, b uint32) uint32{
	"and": func(a, b uint32) uint32 { return a & b },
	"or":  func(a, b uint32) uint32 { return a | b },
	"xor": func(a, b uint32) uint32 { return a ^ b },
}

// decodeSetp decodes setp.cmp{.bool}.type p{|q}, a, b{, c}.
func decodeSetp(b *builder, o *opcode) instr {
	in := instr{kind: instrExec, q: -1}
	relation := o.oneOf(comparisonNames...)
	combine := boolOps[o.oneOf("and", "or", "xor")]
	t := b.typeOf(o)
	n := 3
	if combine != nil {
		n = 4
	}
	b.count(n, n)
	args := b.s.args
	dst := []operand{args[0]}
	if args[0].kind == operandPair {
		dst = args[0].items
		in.q = b.predDst(dst[1])
	}
	in.p = b.predDst(dst[0])
	if t.oneOf(tF16x2, tBF16x2) {
		return b.setpTwo(o, in, t, relation, combine)
	}
	in.a, in.b = b.twoSources(args[1], args[2], t)
	f := b.decodeTestOf(o, t, relation)
	if combine == nil {
		in.exec = func(w *warp, in *instr, m uint32) {
			r := f(&w.regs[in.a], &w.regs[in.b])
			w.setPred(in.p, m, r)
			w.setPred(in.q, m, ^r)
		}
		return in
	}
	with := b.pred(args[3])
	in.exec = func(w *warp, in *instr, m uint32) {
		r, c := f(&w.regs[in.a], &w.regs[in.b]), with.lanes(w)
		w.setPred(in.p, m, combine(r, c))
		w.setPred(in.q, m, combine(^r, c))
	}
	return in
}

// setpTwo compares the halves of two registers, into p and q.
func (b *builder) setpTwo(o *opcode, in instr, t typ, relation string, combine func(a, b uint32) uint32) instr {
	one := map[typ]typ{tF16x2: tF16, tBF16x2: tBF16}[t]
	args := b.s.args
	in.a, in.b = b.twoSources(args[1], args[2], t)
	f := b.decodeTestOf(o, one, relation)
	with := pred{flip: fullMask} // false, which or leaves alone
	if combine == nil {
		combine = boolOps["or"]
	} else {
		with = b.pred(args[3])
	}
	in.exec = func(w *warp, in *instr, m uint32) {
		var hiA, hiB row
		x, y := &w.regs[in.a], &w.regs[in.b]
		for l := range x {
			hiA[l], hiB[l] = x[l]>>16, y[l]>>16
		}
		c := with.lanes(w)
		w.setPred(in.p, m, combine(f(x, y), c))
		w.setPred(in.q, m, combine(f(&hiA, &hiB), c))
	}
	return in
}

func (b *builder) twoSources(x, y operand, t typ) (i, j int32) {
	i = b.src(x, t)
	j = b.src(y, t)
	return i, j
}

// setPred writes a predicate's lanes in m; -1 is none.
func (w *warp) setPred(p int32, m, v uint32) {
	if p >= 0 {
		w.preds[p] = w.preds[p]&^m | v&m
	}
}

// decodeSet decodes set.cmp{.bool}.dtype.stype d, a, b{, c}: all ones or 1.0.
func decodeSet(b *builder, o *opcode) instr {
	in := instr{kind: instrExec}
	relation := o.oneOf(comparisonNames...)
	combine := boolOps[o.oneOf("and", "or", "xor")]
	d, ok := o.typ()
	t, ok2 := o.typ()
	if !ok || !ok2 || !d.oneOf(tU32, tS32, tF32) {
		panic(b.errorf("set has no such form"))
	}
	n := 3
	if combine != nil {
		n = 4
	}
	b.count(n, n)
	args := b.s.args
	in.d = b.dst(args[0], d)
	in.a, in.b = b.twoSources(args[1], args[2], t)
	f := b.decodeTestOf(o, t, relation)
	var with pred
	if combine != nil {
		with = b.pred(args[3])
	}
	yes := uint64(fullMask)
	if d == tF32 {
		yes = uint64(math.Float32bits(1))
	}
	in.exec = func(w *warp, in *instr, m uint32) {
		r := f(&w.regs[in.a], &w.regs[in.b])
		if combine != nil {
			r = combine(r, with.lanes(w))
		}
		w.each(in, m, func(l int, _, _, _ uint64) uint64 { return yes * uint64(r>>l&1) })
	}
	return in
}

// decodeSelect decodes selp d, a, b, p.
func decodeSelect(b *builder, o *opcode) instr {
	in := instr{kind: instrExec}
	t := b.typeOf(o)
	b.count(4, 4)
	args := b.s.args
	in.d = b.dst(args[0], t)
	in.a, in.b = b.twoSources(args[1], args[2], t)
	p := b.pred(args[3])
	in.exec = func(w *warp, in *instr, m uint32) {
		d, x, y := &w.regs[in.d], &w.regs[in.a], &w.regs[in.b]
		chosen := p.lanes(w)
		for l := range d {
			if m>>l&1 == 0 {
				continue
			}
			if chosen>>l&1 != 0 {
				d[l] = x[l]
			} else {
				d[l] = y[l]
			}
		}
	}
	return in
}

// decodeSlct decodes slct d, a, b, c: a if c is not negative.
func decodeSlct(b *builder, o *opcode) instr {
	ftz := o.take("ftz")
	t, ok := o.typ()
	u, ok2 := o.typ()
	if !ok || !ok2 || !u.oneOf(tS32, tF32) {
		panic(b.errorf("slct has no such form"))
	}
	in := b.rowsOf(t, t, t, u)
	in.row = func(d, a, b, c *row) {
		for l := range d {
			first := int32(c[l]) >= 0
			if u == tF32 {
				x := float32of(c[l])
				if ftz {
					x = flush(x)
				}
				first = x >= 0
			}
			if first {
				d[l] = a[l]
			} else {
				d[l] = b[l]
			}
		}
	}
	return in
}

// floatTests are the classes of testp.
var floatTests = map[string]func(x, tiny float64) bool{
	"finite":     func(x, _ float64) bool { return !math.IsInf(x, 0) && x == x },
	"infinite":   func(x, _ float64) bool { return math.IsInf(x, 0) },
	"number":     func(x, _ float64) bool { return x == x },
	"notanumber": func(x, _ float64) bool { return x != x },
	"normal":     func(x, tiny float64) bool { return math.Abs(x) >= tiny && !math.IsInf(x, 0) },
	"subnormal":  func(x, tiny float64) bool { return x != 0 && math.Abs(x) < tiny },
}

// decodeTest decodes testp p, a.
func decodeTest(b *builder, o *opcode) instr {
	in := instr{kind: instrExec}
	f := floatTests[o.oneOf("finite", "infinite", "number", "notanumber", "normal", "subnormal")]
	t := b.typeOf(o)
	if f == nil || t.kind() != kindFloat {
		panic(b.errorf("testp has no such form"))
	}
	b.count(2, 2)
	in.p = b.predDst(b.s.args[0])
	in.a = b.src(b.s.args[1], t)
	tiny := 0x1p-126
	if t == tF64 {
		tiny = 0x1p-1022
	}
	read := floatReader(t, false)
	in.exec = func(w *warp, in *instr, m uint32) {
		var r uint32
		for l, v := range w.regs[in.a] {
			if f(read(v), tiny) {
				r |= 1 << l
			}
		}
		w.setPred(in.p, m, r)
	}
	return in
}

// decodePredLogic decodes and, or, xor and not of predicates.
func decodePredLogic(b *builder, o *opcode) instr {
	in := instr{kind: instrExec}
	n := 3
	if o.name == "not" {
		n = 2
	}
	combine := boolOps[o.name]
	if combine == nil && n == 3 {
		panic(b.errorf("%s has no type pred", o.name))
	}
	b.count(n, n)
	in.p = b.predDst(b.s.args[0])
	var preds []pred
	for _, a := range b.s.args[1:] {
		p := b.pred(a)
		preds = append(preds, p)
	}
	in.exec = func(w *warp, in *instr, m uint32) {
		if combine == nil {
			w.setPred(in.p, m, ^preds[0].lanes(w))
			return
		}
		w.setPred(in.p, m, combine(preds[0].lanes(w), preds[1].lanes(w)))
	}
	return in
}
