package ptx

import "strings"

// takeHints drops modifiers that only concern caches. It reports whether one
// of them comes with an operand, a cache policy.
func takeHints(o *opcode) (policy bool) {
	kept := o.mods[:0:0]
	for _, m := range o.mods {
		switch {
		case m == "L2::cache_hint":
			policy = true
		case strings.HasPrefix(m, "L1::") || strings.HasPrefix(m, "L2::"):
		default:
			kept = append(kept, m)
		}
	}
	o.mods = kept
	o.oneOf("ca", "cg", "cs", "lu", "cv", "wb", "wt")
	return policy
}

// takeScope takes a scope of the memory model.
func takeScope(o *opcode) string { return o.oneOf("cta", "cluster", "gpu", "sys") }

// decodeAccess takes the modifiers that ld and st share.
func (b *builder) decodeAccess(o *opcode) (t typ, op *memOp, vector int, policy bool) {
	op = b.newMemOp(spaceGeneric, 0)
	sem := o.oneOf("weak", "volatile", "relaxed", "acquire", "release")
	op.acquire = sem == "acquire"
	switch sem {
	case "", "weak":
	case "release":
		scope := takeScope(o)
		op.release, op.system = scope != "cta", scope == "sys"
		op.strong = true
	default:
		op.system = takeScope(o) == "sys"
		op.strong = true
	}
	op.space, _ = takeSpace(o)
	policy = takeHints(o)
	vector = map[string]int{"": 1, "v2": 2, "v4": 4}[o.oneOf("v2", "v4")]
	t = b.typeOf(o)
	if t.bits() < 8 || t.kind() == kindHalf || t.kind() == kindTF32 || t.bits()*vector > 128 {
		panic(b.errorf("%s has no type %s", o.name, t))
	}
	op.size = uint64(t.bytes())
	op.total = op.size * uint64(vector)
	op.signed = t.signed()
	return t, op, vector, policy
}

// accessAddress decodes the address of an access and settles its space.
func (b *builder) accessAddress(in *instr, o operand) {
	base, offset, s := b.address(o)
	in.a, in.offset = base, offset
	op := in.mem
	switch {
	case op.space == spaceParam && len(b.stack) > 1:
		op.space = spaceLocal // parameters of calls
	case op.space == spaceParam && s == spaceLocal:
		op.space = spaceLocal
	case op.space == spaceGeneric && s != spaceGeneric:
		op.space = s
	case s != spaceGeneric && s != op.space:
		panic(b.errorf("a %s address in a %s access", s, op.space))
	}
	if inner := o.items[0]; inner.kind == operandName {
		sym, _ := b.lookup(inner.name)
		op.narrow = sym.kind == symbolRegister && sym.typ.bits() == 32
		if op.narrow && (op.space == spaceGlobal || op.space == spaceGeneric) {
			panic(b.errorf("%s has 32 bits, too few for a %s address", inner.name, op.space))
		}
	}
}

// vectorItems returns the registers of a vector operand, or the one.
func (b *builder) vectorItems(o operand, n int) []operand {
	items := []operand{o}
	if o.kind == operandVector {
		items = o.items
	}
	if len(items) != n {
		panic(b.errorf("%d registers, not %d", len(items), n))
	}
	return items
}

// policyOperand checks for the cache policy that may end the operands.
func (b *builder) policyOperand(policy bool, n int) {
	if policy {
		n++
	}
	b.count(n, n)
}

func decodeLoad(b *builder, o *opcode) instr {
	in := instr{kind: instrExec, exec: load}
	fixed := o.take("nc") || o.name == "ldu"
	if fixed && !hasSpace(o, "global") && o.name == "ld" {
		panic(b.errorf("ld.nc is for global memory"))
	}
	t, op, n, policy := b.decodeAccess(o)
	b.policyOperand(policy, 2)
	in.mem, op.fixed, op.early = op, fixed, fixed
	b.polls = b.polls || op.system
	if op.release {
		panic(b.errorf("ld.release"))
	}
	items := b.vectorItems(b.s.args[0], n)
	for _, item := range items {
		r := symbol{typ: t}
		if item.kind != operandName || item.name != "_" {
			r = b.registerOf(item, t.bits(), atLeast)
		}
		in.rows = append(in.rows, r.index)
		op.regBits = append(op.regBits, r.typ.bits())
	}
	b.accessAddress(&in, b.s.args[1])
	b.fixedParam(&in)
	return in
}

func hasSpace(o *opcode, name string) bool {
	for _, m := range o.mods {
		if m == name {
			return true
		}
	}
	return false
}

// fixedParam turns the load of a parameter by its name into one that is
// checked here and now.
func (b *builder) fixedParam(in *instr) {
	inner := b.s.args[1].items[0]
	if in.mem.space != spaceParam || inner.kind != operandName {
		return
	}
	sym, ok := b.lookup(inner.name)
	if !ok || sym.kind != symbolAddress {
		return
	}
	at := sym.addr.value + in.offset
	if n := in.mem.total; at%n != 0 || at > uint64(b.entry.paramBytes) || n > uint64(b.entry.paramBytes)-at {
		panic(b.errorf("%d bytes at %d of the %d bytes of parameters", n, at, b.entry.paramBytes))
	}
	in.exec, in.offset, in.a = loadParam, at, 0
}

func decodeStore(b *builder, o *opcode) instr {
	in := instr{kind: instrExec, exec: store}
	t, op, n, policy := b.decodeAccess(o)
	b.policyOperand(policy, 2)
	in.mem = op
	items := b.vectorItems(b.s.args[1], n)
	for _, item := range items {
		in.rows = append(in.rows, b.wideSrc(item, t))
	}
	b.accessAddress(&in, b.s.args[0])
	if op.space == spaceConst || op.space == spaceParam {
		panic(b.errorf("a store to %s memory", op.space))
	}
	return in
}

// decodeNothing decodes what has no effect here.
func decodeNothing(b *builder, o *opcode) instr {
	o.mods = nil
	return instr{kind: instrRow, row: func(_, _, _, _ *row) {}}
}

// decodePolicy decodes createpolicy, whose value nothing here looks at.
func decodePolicy(b *builder, o *opcode) instr {
	o.mods = nil
	b.count(2, 4)
	d := b.dst(b.s.args[0], tB64)
	return instr{kind: instrRow, d: d, a: b.value(0), row: copyRow}
}
