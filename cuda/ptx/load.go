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
func (b *builder) decodeAccess(o *opcode) (t typ, op *memOp, vector int, policy bool, err error) {
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
	if t, err = b.typeOf(o); err != nil {
		return t, op, vector, policy, err
	}
	if t.bits() < 8 || t.kind() == kindHalf || t.kind() == kindTF32 || t.bits()*vector > 128 {
		return t, op, vector, policy, b.errorf("%s has no type %s", o.name, t)
	}
	op.size = uint64(t.bytes())
	op.total = op.size * uint64(vector)
	op.signed = t.signed()
	op.word = op.size == 4 && vector == 1 && !op.signed
	return t, op, vector, policy, nil
}

// accessAddress decodes the address of an access and settles its space.
func (b *builder) accessAddress(in *instr, o operand) error {
	base, offset, s, err := b.address(o)
	if err != nil {
		return err
	}
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
		return b.errorf("a %s address in a %s access", s, op.space)
	}
	if inner := o.items[0]; inner.kind == operandName {
		sym, _ := b.lookup(inner.name)
		op.narrow = sym.kind == symbolRegister && sym.typ.bits() == 32
		if op.narrow && (op.space == spaceGlobal || op.space == spaceGeneric) {
			return b.errorf("%s has 32 bits, too few for a %s address", inner.name, op.space)
		}
	}
	return nil
}

// vectorItems returns the registers of a vector operand, or the one.
func (b *builder) vectorItems(o operand, n int) ([]operand, error) {
	items := []operand{o}
	if o.kind == operandVector {
		items = o.items
	}
	if len(items) != n {
		return nil, b.errorf("%d registers, not %d", len(items), n)
	}
	return items, nil
}

// policyOperand checks for the cache policy that may end the operands.
func (b *builder) policyOperand(policy bool, n int) error {
	if policy {
		n++
	}
	return b.count(n, n)
}

func decodeLoad(b *builder, o *opcode) (instr, error) {
	in := instr{kind: instrExec, exec: load}
	fixed := o.take("nc") || o.name == "ldu"
	if fixed && !hasSpace(o, "global") && o.name == "ld" {
		return in, b.errorf("ld.nc is for global memory")
	}
	t, op, n, policy, err := b.decodeAccess(o)
	if err != nil {
		return in, err
	}
	if err := b.policyOperand(policy, 2); err != nil {
		return in, err
	}
	in.mem, op.fixed = op, fixed
	b.polls = b.polls || op.system
	if op.release {
		return in, b.errorf("ld.release")
	}
	items, err := b.vectorItems(b.s.args[0], n)
	if err != nil {
		return in, err
	}
	for _, item := range items {
		r := symbol{typ: t}
		if item.kind != operandName || item.name != "_" {
			if r, err = b.registerOf(item, t.bits(), atLeast); err != nil {
				return in, err
			}
		}
		in.rows = append(in.rows, r.index)
		op.regBits = append(op.regBits, r.typ.bits())
	}
	if err := b.accessAddress(&in, b.s.args[1]); err != nil {
		return in, err
	}
	return in, b.fixedParam(&in)
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
func (b *builder) fixedParam(in *instr) error {
	inner := b.s.args[1].items[0]
	if in.mem.space != spaceParam || inner.kind != operandName {
		return nil
	}
	sym, ok := b.lookup(inner.name)
	if !ok || sym.kind != symbolAddress {
		return nil
	}
	at := sym.addr.value + in.offset
	if n := in.mem.total; at%n != 0 || at > uint64(b.entry.paramBytes) || n > uint64(b.entry.paramBytes)-at {
		return b.errorf("%d bytes at %d of the %d bytes of parameters", n, at, b.entry.paramBytes)
	}
	in.exec, in.offset, in.a = loadParam, at, 0
	return nil
}

func decodeStore(b *builder, o *opcode) (instr, error) {
	in := instr{kind: instrExec, exec: store}
	t, op, n, policy, err := b.decodeAccess(o)
	if err != nil {
		return in, err
	}
	if err := b.policyOperand(policy, 2); err != nil {
		return in, err
	}
	in.mem = op
	items, err := b.vectorItems(b.s.args[1], n)
	if err != nil {
		return in, err
	}
	for _, item := range items {
		r, err := b.wideSrc(item, t)
		if err != nil {
			return in, err
		}
		in.rows = append(in.rows, r)
	}
	if err := b.accessAddress(&in, b.s.args[0]); err != nil {
		return in, err
	}
	if op.space == spaceConst || op.space == spaceParam {
		return in, b.errorf("a store to %s memory", op.space)
	}
	return in, nil
}

// decodeNothing decodes what has no effect here.
func decodeNothing(b *builder, o *opcode) (instr, error) {
	o.mods = nil
	return instr{kind: instrRow, row: func(_, _, _, _ *row) {}}, nil
}

// decodePolicy decodes createpolicy, whose value nothing here looks at.
func decodePolicy(b *builder, o *opcode) (instr, error) {
	o.mods = nil
	if err := b.count(2, 4); err != nil {
		return instr{}, err
	}
	d, err := b.dst(b.s.args[0], tB64)
	return instr{kind: instrRow, d: d, a: b.value(0), row: copyRow}, err
}
