package ptx

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A builder decodes one kernel. Calls are expanded in place, so that a
// thread's place in the kernel is one number.
type builder struct {
	module *Module
	entry  *Entry
	scopes []*scope
	fixed  map[fixedRow]int32 // by all but the row
	shared map[*variable]uint64
	stack  []*function
	s      *statement
	emitted
}

// emitted is what has been decoded so far.
type emitted struct {
	code   []instr
	rows   int32
	preds  int32
	memOps int32
	polls  bool
}

// A scope is a pair of braces: of a function or in it.
type scope struct {
	symbols  map[string]symbol
	families []family
	labels   map[string]*label
	tables   map[string][]string // of .branchtargets
}

// A family is registers declared together: %r<19>. They get rows as they are
// used.
type family struct {
	prefix string
	count  int
	typ    typ
}

type label struct{ pc int32 }

type symbolKind uint8

const (
	symbolRegister symbolKind = iota
	symbolPred
	symbolAddress
)

// A symbol is what a name in a kernel stands for.
type symbol struct {
	kind  symbolKind
	typ   typ
	index int32 // row or predicate
	space space
	addr  fixedRow // of a variable
	bytes int
}

const (
	maxEntryInstrs  = 1 << 17
	maxModuleInstrs = 1 << 19
	maxLocalBytes   = 512 << 10
	maxStackDepth   = 64
)

func build(m *Module, f *function) *Entry {
	b := &builder{
		module: m, fixed: map[fixedRow]int32{}, shared: map[*variable]uint64{},
		entry:   &Entry{module: m, name: f.name, maxntid: f.maxntid, reqntid: f.reqntid, sharedAlign: 16},
		emitted: emitted{code: make([]instr, 0, len(f.body)+1), rows: 1, preds: 1},
	}
	b.push(f.body)
	for _, v := range f.params {
		at := alignUp(b.entry.paramBytes, v.align)
		b.entry.params = append(b.entry.params, Param{Name: v.name, Offset: at, Size: v.bytes, Align: v.align})
		b.entry.paramBytes = at + v.bytes
		b.define(v.name, symbol{kind: symbolAddress, space: spaceParam, bytes: v.bytes, addr: fixedRow{value: uint64(at)}})
	}
	b.function(f, nil)
	b.emit(instr{kind: instrExit, line: int32(f.line)})
	b.patch()
	if m.instrs += len(b.code); m.instrs > maxModuleInstrs {
		panic(syntaxError{fmt.Errorf("%s: more than %d instructions, calls expanded", m.name, maxModuleInstrs)})
	}
	e := b.entry
	e.code, e.preds, e.rows, e.memOps, e.polls = b.code, int(b.preds), int(b.rows), int(b.memOps), b.polls
	return e
}

func (b *builder) errorf(format string, args ...any) syntaxError {
	return syntaxError{fmt.Errorf("%s: line %d: %s: %s", b.module.name, b.s.line, b.module.source(b.s.line), fmt.Sprintf(format, args...))}
}

// push opens the scope of the statements, which end with its closing brace,
// and finds its labels.
func (b *builder) push(body []statement) {
	sc := &scope{symbols: map[string]symbol{}, labels: map[string]*label{}, tables: map[string][]string{}}
	depth := 0
	for i := range body {
		switch s := &body[i]; s.kind {
		case statementOpen:
			depth++
		case statementClose:
			depth--
		case statementLabel:
			if depth != 0 {
				continue
			}
			if sc.labels[s.name] != nil {
				panic(syntaxError{fmt.Errorf("%s: line %d: label %s is there twice", b.module.name, s.line, s.name)})
			}
			sc.labels[s.name] = &label{pc: -1}
		case statementTargets:
			if depth == 0 {
				sc.tables[s.name] = s.targets
			}
		}
		if depth < 0 {
			break
		}
	}
	b.scopes = append(b.scopes, sc)
}

func (b *builder) pop() { b.scopes = b.scopes[:len(b.scopes)-1] }

func (b *builder) define(name string, s symbol) { b.scopes[len(b.scopes)-1].symbols[name] = s }

// function decodes a body in the scope that is open. ret is where a called
// function returns to; nil in a kernel.
func (b *builder) function(f *function, ret *label) {
	b.stack = append(b.stack, f)
	depth := len(b.scopes)
	for i := range f.body {
		b.s = &f.body[i]
		switch b.s.kind {
		case statementOpen:
			b.push(f.body[i+1:])
		case statementClose:
			b.pop()
		case statementLabel:
			b.scopes[len(b.scopes)-1].labels[b.s.name].pc = int32(len(b.code))
		case statementReg:
			b.registers()
		case statementVar:
			b.declare(b.s.variable)
		case statementInstr:
			b.instruction(ret)
		}
	}
	b.scopes = b.scopes[:depth]
	b.stack = b.stack[:len(b.stack)-1]
}

func (b *builder) registers() {
	sc := b.scopes[len(b.scopes)-1]
	for _, r := range b.s.regs {
		if r.count > 0 {
			sc.families = append(sc.families, family{prefix: r.name, count: r.count, typ: b.s.typ})
		} else {
			sc.symbols[r.name] = b.register(b.s.typ)
		}
	}
}

func (b *builder) register(t typ) symbol {
	if t == tPred {
		b.preds++
		return symbol{kind: symbolPred, typ: t, index: b.preds - 1}
	}
	b.rows++
	return symbol{kind: symbolRegister, typ: t, index: b.rows - 1}
}

// declare gives a variable inside a function its place. Parameters of calls
// are local memory.
func (b *builder) declare(v *variable) {
	if v.extern {
		panic(b.errorf("%s has no size", v.name))
	}
	switch v.space {
	case spaceLocal, spaceParam:
		at := alignUp(b.entry.local, v.align)
		b.entry.local = at + v.bytes
		if b.entry.local > maxLocalBytes {
			panic(b.errorf("more than %d bytes of local memory", maxLocalBytes))
		}
		b.define(v.name, symbol{kind: symbolAddress, space: spaceLocal, bytes: v.bytes, addr: fixedRow{value: uint64(at)}})
	case spaceShared:
		b.define(v.name, b.sharedSymbol(v))
	default:
		panic(b.errorf("a %s variable inside a function", v.space))
	}
}

// sharedSymbol gives a shared variable its place on first use.
func (b *builder) sharedSymbol(v *variable) symbol {
	s := symbol{kind: symbolAddress, space: spaceShared, bytes: v.bytes}
	if v.extern {
		b.entry.sharedAlign = max(b.entry.sharedAlign, v.align)
		s.addr.kind = fixedDynamicShared
		return s
	}
	at, ok := b.shared[v]
	if !ok {
		at = uint64(alignUp(b.entry.shared, v.align))
		b.shared[v] = at
		b.entry.shared = int(at) + v.bytes
	}
	s.addr.value = at
	return s
}

// lookup finds a name in the scopes from the inmost out, then in the module.
// Scopes of the callers are out of reach.
func (b *builder) lookup(name string) (symbol, bool) {
	for i := len(b.scopes) - 1; i >= 0 && b.scopes[i] != nil; i-- {
		sc := b.scopes[i]
		if s, ok := sc.symbols[name]; ok {
			return s, true
		}
		for _, f := range sc.families {
			if f.has(name) {
				s := b.register(f.typ)
				sc.symbols[name] = s
				return s, true
			}
		}
	}
	v, ok := b.module.variables[name]
	if !ok {
		return symbol{}, false
	}
	switch v.space {
	case spaceShared:
		return b.sharedSymbol(v), true
	case spaceConst:
		return symbol{kind: symbolAddress, space: spaceConst, bytes: v.bytes, addr: fixedRow{value: uint64(b.module.constOffsets[name])}}, true
	}
	return symbol{kind: symbolAddress, space: v.space, bytes: v.bytes, addr: fixedRow{kind: fixedGlobal, name: name}}, true
}

func (f family) has(name string) bool {
	digits, ok := strings.CutPrefix(name, f.prefix)
	if !ok || digits == "" || !isDigit(digits[0]) || len(digits) > 1 && digits[0] == '0' {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return err == nil && n < uint64(f.count)
}

func (b *builder) label(name string) *label {
	for i := len(b.scopes) - 1; i >= 0 && b.scopes[i] != nil; i-- {
		if l := b.scopes[i].labels[name]; l != nil {
			return l
		}
	}
	panic(b.errorf("there is no label %s", name))
}

// newMemOp numbers the accesses of a kernel.
func (b *builder) newMemOp(s space, size uint64) *memOp {
	b.memOps++
	return &memOp{number: b.memOps - 1, space: s, size: size, total: size}
}

func (b *builder) emit(in instr) { b.code = append(b.code, in) }

// patch fills in the targets of branches.
func (b *builder) patch() {
	for i := range b.code {
		in := &b.code[i]
		if in.label != nil {
			in.target = in.label.pc
			in.label = nil
		}
	}
}

// instruction decodes the current statement.
func (b *builder) instruction(ret *label) {
	if len(b.code) >= maxEntryInstrs {
		panic(b.errorf("kernel %s has more than %d instructions, calls expanded", b.entry.name, maxEntryInstrs))
	}
	o := newOpcode(b.s.name)
	switch o.name {
	case "call":
		b.call(o)
		return
	case "ret":
		if ret != nil {
			o.take("uni")
			b.finish(o, instr{kind: instrBranch, operands: operands{label: ret}})
			return
		}
	}
	decode, ok := decoders[o.name]
	if !ok {
		panic(b.errorf("instruction %s is not modelled", o.name))
	}
	in := decode(b, o)
	b.finish(o, in)
}

// finish checks that nothing of the instruction is left over, adds the guard
// and emits.
func (b *builder) finish(o *opcode, in instr) {
	if len(o.mods) > 0 {
		panic(b.errorf("modifier .%s is not modelled", strings.Join(o.mods, ".")))
	}
	if b.s.guard != "" {
		p := b.pred(operand{name: b.s.guard, not: b.s.guardNot})
		in.guard, in.flip = p.index, p.flip
	}
	in.line = int32(b.s.line)
	b.emit(in)
}

// An opcode is an instruction's name and the modifiers that no one has asked
// for yet.
type opcode struct {
	name string
	mods []string
}

func newOpcode(text string) *opcode {
	parts := strings.Split(text, ".")
	return &opcode{name: parts[0], mods: parts[1:]}
}

// take removes the modifier and reports whether it was there.
func (o *opcode) take(mod string) bool { return o.oneOf(mod) != "" }

// oneOf removes the first modifier that is among those and returns it.
func (o *opcode) oneOf(mods ...string) string {
	for i, have := range o.mods {
		for _, m := range mods {
			if have == m {
				o.mods = append(o.mods[:i:i], o.mods[i+1:]...)
				return m
			}
		}
	}
	return ""
}

// first removes the first modifier if it is among those.
func (o *opcode) first(mods ...string) string {
	if len(o.mods) == 0 {
		return ""
	}
	for _, m := range mods {
		if o.mods[0] == m {
			o.mods = o.mods[1:]
			return m
		}
	}
	return ""
}

// typ removes the first modifier that is a type.
func (o *opcode) typ() (typ, bool) {
	for i, m := range o.mods {
		if t, ok := typesByName[m]; ok {
			o.mods = append(o.mods[:i:i], o.mods[i+1:]...)
			return t, true
		}
	}
	return noType, false
}

// typeOf is typ with an error if there is none.
func (b *builder) typeOf(o *opcode) typ {
	t, ok := o.typ()
	if !ok {
		panic(b.errorf("%s has no type", b.s.name))
	}
	return t
}

// count checks the number of operands.
func (b *builder) count(low, high int) {
	if n := len(b.s.args); n < low || n > high {
		panic(b.errorf("%d operands", n))
	}
}

// width is how an operand's register may differ from the instruction's type.
type width bool

const (
	exact   width = false
	atLeast width = true // ld, st and cvt take larger registers
)

// registerOf finds a register operand.
func (b *builder) registerOf(o operand, bits int, w width) symbol {
	if o.kind != operandName || o.not || o.bits != 0 {
		panic(b.errorf("expected a register of %d bits", bits))
	}
	s, ok := b.lookup(o.name)
	switch {
	case !ok:
		panic(b.errorf("%s is not declared", o.name))
	case s.kind != symbolRegister:
		panic(b.errorf("%s is no register of %d bits", o.name, bits))
	case s.typ.bits() != bits && (w == exact || s.typ.bits() < bits):
		panic(b.errorf("%s has %d bits, not %d", o.name, s.typ.bits(), bits))
	}
	return s
}

// dst finds the row of a register that is written.
func (b *builder) dst(o operand, t typ) int32 {
	if o.kind == operandName && o.name == "_" {
		return 0
	}
	return b.registerOf(o, t.bits(), exact).index
}

// src finds the row of an operand that is read: a register, a special one, a
// number or a variable's address.
func (b *builder) src(o operand, t typ) int32 {
	switch o.kind {
	case operandInt, operandFloat32, operandFloat64:
		v, err := immediate(o, t)
		if err != nil {
			panic(b.errorf("%v", err))
		}
		return b.value(v)
	case operandName:
		if n, ok := specials[o.name]; ok {
			return b.fixedRow(fixedRow{kind: fixedSpecial, value: uint64(n)})
		}
		if s, ok := b.lookup(o.name); ok && s.kind == symbolAddress && !o.not {
			s.addr.value += o.bits
			return b.fixedRow(s.addr)
		}
		if o.name == "WARP_SZ" {
			return b.value(32)
		}
	}
	return b.registerOf(o, t.bits(), exact).index
}

// wideSrc is src for a register that may be wider than the type.
func (b *builder) wideSrc(o operand, t typ) int32 {
	if s, ok := b.lookup(o.name); ok && o.kind == operandName && s.kind == symbolRegister {
		return b.registerOf(o, t.bits(), atLeast).index
	}
	return b.src(o, t)
}

// pred finds a predicate that is read.
func (b *builder) pred(o operand) pred {
	var flip uint32
	if o.not {
		flip = fullMask
	}
	s, ok := b.lookup(o.name)
	if o.kind != operandName || !ok || s.kind != symbolPred {
		if o.kind == operandInt { // setp and friends never, but selp and mov may
			return pred{0, uint32(fullMask * (1 - min(o.bits, 1)))}
		}
		panic(b.errorf("%s is no predicate", o.name))
	}
	return pred{s.index, flip}
}

// predDst finds a predicate that is written; -1 for _.
func (b *builder) predDst(o operand) int32 {
	if o.kind == operandName && o.name == "_" {
		return -1
	}
	s, ok := b.lookup(o.name)
	if o.kind != operandName || o.not || !ok || s.kind != symbolPred {
		panic(b.errorf("%s is no predicate", o.name))
	}
	return s.index
}

// value returns the row of a constant.
func (b *builder) value(v uint64) int32 { return b.fixedRow(fixedRow{value: v}) }

func (b *builder) fixedRow(f fixedRow) int32 {
	if r, ok := b.fixed[f]; ok {
		return r
	}
	b.rows++
	r := b.rows - 1
	b.fixed[f] = r
	f.row = r
	b.entry.fixed = append(b.entry.fixed, f)
	return r
}

// immediate converts a literal to a type.
func immediate(o operand, t typ) (uint64, error) {
	bits := o.bits
	switch {
	case o.kind == operandInt && t == tF32:
		return uint64(math.Float32bits(float32(int64(bits)))), nil
	case o.kind == operandInt && t == tF64:
		return math.Float64bits(float64(int64(bits))), nil
	case o.kind == operandFloat32 && t == tF64:
		return math.Float64bits(float64(math.Float32frombits(uint32(bits)))), nil
	case o.kind == operandFloat64 && t.oneOf(tF32, tB32):
		return uint64(math.Float32bits(float32(math.Float64frombits(bits)))), nil
	case o.kind == operandFloat32 && t.bits() != 32, o.kind == operandFloat64 && t.bits() != 64:
		return 0, fmt.Errorf("a floating-point literal for type %s", t)
	case o.kind == operandName:
		return 0, fmt.Errorf("%s is not a number", o.name)
	}
	if n := t.bits(); n < 64 {
		bits &= 1<<n - 1
	}
	return bits, nil
}

// address decodes [base+offset] and says in which space base lies; generic if
// that is not known.
func (b *builder) address(o operand) (base int32, offset uint64, s space) {
	if o.kind != operandAddress {
		panic(b.errorf("expected an address in brackets"))
	}
	offset = o.bits
	inner := o.items[0]
	if inner.kind == operandInt {
		return b.value(inner.bits), offset, spaceGeneric
	}
	sym, ok := b.lookup(inner.name)
	switch {
	case inner.kind != operandName || inner.not || !ok:
		panic(b.errorf("%s is no address", inner.name))
	case sym.kind == symbolAddress:
		return b.fixedRow(sym.addr), offset, sym.space
	case sym.kind == symbolRegister && (sym.typ.bits() == 32 || sym.typ.bits() == 64):
		return sym.index, offset, spaceGeneric
	}
	panic(b.errorf("%s is no address", inner.name))
}
